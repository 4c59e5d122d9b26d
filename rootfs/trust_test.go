//go:build linux

package rootfs

import (
	"slices"
	"strings"
	"testing"
)

func TestTrustingShowsOneCertificate(t *testing.T) {
	v, err := HostView(nil, sprout)
	if err != nil {
		t.Fatal(err)
	}
	before := len(v.Mounts)
	trusting := v.Trusting([]byte(certificate))
	for _, m := range trusting.Mounts {
		if strings.Contains(m.Target, "/certs") || strings.Contains(m.Target, "extracted") {
			t.Errorf("%s is still shown at %s", m.Source, m.Target)
		}
	}
	for _, m := range trusting.Masks {
		if strings.HasPrefix(m.Path, "/etc/ssl/certs") {
			t.Errorf("%s is still masked, and not there", m.Path)
		}
	}
	made := map[string]bool{"/": true}
	for _, d := range trusting.Dirs {
		if parent := d.Path[:max(1, strings.LastIndexByte(d.Path, '/'))]; !made[parent] {
			t.Errorf("%s comes before %s", d.Path, parent)
		}
		made[d.Path] = true
	}
	for _, file := range trustStores {
		if string(trusting.Files[file]) != certificate || !made[file[:strings.LastIndexByte(file, '/')]] {
			t.Errorf("%s holds %q", file, trusting.Files[file])
		}
	}
	// The view that it was made from is as it was.
	if len(v.Mounts) != before || v.Files[trustStores[0]] != nil || !slices.IsSortedFunc(v.Dirs, func(a, b Dir) int { return strings.Compare(a.Path, b.Path) }) {
		t.Error("the first view changed")
	}
}
