//go:build linux

package rootfs

import (
	"maps"
	"slices"
	"strings"
)

// trustStores are the files in which programs look for the certificates that they trust,
// by distribution (Debian and Arch, Alpine and the BSDs' OpenSSL, Fedora).
var trustStores = []string{"/etc/ssl/certs/ca-certificates.crt", "/etc/ssl/cert.pem", "/etc/pki/tls/certs/ca-bundle.crt"}

// Trusting returns the view with one certificate, in PEM, in the place of all those that
// the host trusts. Programs that bring a list of their own have to be told by their
// environment.
func (v View) Trusting(certificate []byte) View {
	stores := []string{"/etc/ssl/certs", "/etc/pki/tls/certs", "/etc/pki/ca-trust/extracted", "/etc/ca-certificates/extracted"}
	below := func(path string) bool {
		return slices.ContainsFunc(stores, func(store string) bool { return within(path, store) })
	}
	v.Mounts = slices.DeleteFunc(slices.Clone(v.Mounts), func(m Mount) bool { return below(m.Target) })
	v.Masks = slices.DeleteFunc(slices.Clone(v.Masks), func(m Mask) bool { return below(m.Path) })
	v.Files = maps.Clone(v.Files)
	dirs := map[string]bool{}
	for _, d := range v.Dirs {
		dirs[d.Path] = true
	}
	v.Dirs = slices.Clone(v.Dirs)
	for _, file := range trustStores {
		v.Files[file] = certificate
		for i := 1; i < len(file); i++ {
			if dir := file[:i]; file[i] == '/' && !dirs[dir] {
				dirs[dir] = true
				v.Dirs = append(v.Dirs, Dir{dir, 0o755})
			}
		}
	}
	slices.SortFunc(v.Dirs, func(a, b Dir) int { return strings.Compare(a.Path, b.Path) })
	return v
}
