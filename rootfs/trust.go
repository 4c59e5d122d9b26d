//go:build linux

package rootfs

import (
	"encoding/pem"
	"maps"
	"slices"
	"strings"
)

// trustStores are the files in which programs look for the certificates that they trust,
// by distribution (Debian and Arch, Alpine and the BSDs' OpenSSL, Fedora).
var trustStores = []string{"/etc/ssl/certs/ca-certificates.crt", "/etc/ssl/cert.pem", "/etc/pki/tls/certs/ca-bundle.crt"}

// trustDirs are the directories that hold certificates which programs trust, and what they
// are made from.
var trustDirs = []string{"/etc/ssl/certs", "/etc/pki/tls/certs", "/etc/pki/ca-trust/extracted", "/etc/ca-certificates/extracted"}

// TrustDirs are the directories of which nothing is to be seen beside what [View.Trusting]
// puts there.
func TrustDirs() []string { return slices.Clone(trustDirs) }

// Trusting returns the view with one certificate, in PEM, in the place of all those that
// the host trusts, and in the form that Java reads beside it. Programs that bring a list of
// their own have to be told by their environment.
func (v View) Trusting(certificate []byte) View {
	below := func(path string) bool {
		return slices.ContainsFunc(trustDirs, func(store string) bool { return within(path, store) })
	}
	v.Mounts = slices.DeleteFunc(slices.Clone(v.Mounts), func(m Mount) bool { return below(m.Target) })
	v.Masks = slices.DeleteFunc(slices.Clone(v.Masks), func(m Mask) bool { return below(m.Path) })
	for _, file := range trustStores {
		v = v.withFile(file, certificate)
	}
	if block, _ := pem.Decode(certificate); block != nil {
		v = v.withFile(javaTrustStore, keyStore(block.Bytes))
	}
	return v
}

// Showing returns the view with a file of the host at one more path, read-only.
func (v View) Showing(source, target string) View {
	v = v.withFile(target, nil) // what it is mounted on
	v.Mounts = append(slices.Clone(v.Mounts), Mount{source, target})
	slices.SortFunc(v.Mounts, func(a, b Mount) int { return strings.Compare(a.Target, b.Target) })
	return v
}

// withFile adds a file, and the directories that lead there.
func (v View) withFile(file string, content []byte) View {
	v.Files, v.Dirs = maps.Clone(v.Files), slices.Clone(v.Dirs)
	if v.Files == nil { // the view of nothing
		v.Files = map[string][]byte{}
	}
	v.Files[file] = content
	for i := 1; i < len(file); i++ {
		if dir := file[:i]; file[i] == '/' && !slices.ContainsFunc(v.Dirs, func(d Dir) bool { return d.Path == dir }) {
			v.Dirs = append(v.Dirs, Dir{dir, 0o755})
		}
	}
	slices.SortFunc(v.Dirs, func(a, b Dir) int { return strings.Compare(a.Path, b.Path) })
	return v
}
