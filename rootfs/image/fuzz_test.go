//go:build linux

package image

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"tendril/erofs"
	"tendril/rootfs"
)

var account = rootfs.User{UID: 70707, GID: 70707, Name: "sprout", Home: "/home/sprout"}

// seeds are layers with what makes them hostile.
func seeds(f *testing.F) [][]byte {
	header := func(kind byte, name, target string) *tar.Header {
		return &tar.Header{Typeflag: kind, Name: name, Linkname: target, Mode: 0o6755, ModTime: time.Unix(1, 0)}
	}
	var all [][]byte
	for _, list := range [][]*tar.Header{
		{header(tar.TypeReg, "d/f", ""), header(tar.TypeLink, "h", "d/f"), header(tar.TypeSymlink, "l", "/d"), header(tar.TypeReg, "l/g", "")},
		{header(tar.TypeReg, "d/.wh.f", ""), header(tar.TypeReg, "d/.wh..wh..opq", ""), header(tar.TypeReg, ".wh.l", ""), header(tar.TypeDir, "./", "")},
		{header(tar.TypeSymlink, "a", "b"), header(tar.TypeSymlink, "b", "a"), header(tar.TypeReg, "../x", ""), header(tar.TypeChar, "c", "")},
		{header(tar.TypeSymlink, "workspace", "/etc"), header(tar.TypeSymlink, "etc", "/workspace"), header(tar.TypeReg, ".tendril/stoma", ""), header(tar.TypeSymlink, "etc/ssl", "/etc/ssl/certs")},
	} {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		for _, h := range list {
			if err := w.WriteHeader(h); err != nil {
				f.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			f.Fatal(err)
		}
		all = append(all, b.Bytes())
	}
	return all
}

// inMemory is a file that is on no disk.
func inMemory(t *testing.T) *os.File {
	t.Helper()
	fd, err := unix.MemfdCreate("image", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "image")
	t.Cleanup(func() { f.Close() })
	return f
}

// FuzzLayers: whatever two layers are, they are refused or become a tree that keeps to its
// bounds, holds none of what is left out, and has every place.
func FuzzLayers(f *testing.F) {
	all := seeds(f)
	for i := range all {
		f.Add(all[i], all[(i+1)%len(all)])
	}
	places, err := rootfs.ImagePlaces(account)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, lower, upper []byte) {
		const entries, size = 2000, 1 << 20
		content, image := inMemory(t), inMemory(t)
		fl := &flattener{headers: entries, tree: newTree(entries, time.Unix(500, 0)), spool: newSpool(content, size), stream: size}
		for n, layer := range [][]byte{lower, upper} {
			fl.n = n + 1
			if err := fl.layer(context.Background(), bounded{bytes.NewReader(layer), &fl.stream}); err != nil {
				return
			}
		}
		if err := fl.addPlaces(places); err != nil {
			return
		}
		made, length, err := fl.write(context.Background(), image)
		if err != nil {
			t.Fatalf("a tree cannot be written: %v", err)
		}
		r, err := erofs.Open(image, length)
		if err != nil {
			t.Fatal(err)
		}
		total, names, found := int64(0), 0, map[string]fs.FileMode{}
		if err := r.Walk(func(e *erofs.Entry) error {
			names++
			found["/"+e.Path] = e.Mode
			if e.Link == "" {
				n, err := io.Copy(io.Discard, e.Content())
				if total += n; err != nil {
					return err
				}
			}
			if base := filepath.Base(e.Path); strings.HasPrefix(base, whiteout) {
				t.Errorf("the whiteout %q is in the tree", e.Path)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if names != made || names > entries || total > size+1<<16 {
			t.Errorf("%d names (%d were counted) and %d bytes", names, made, total)
		}
		for _, d := range append(places.Dirs, places.Empty...) {
			if found[d.Path] != fs.ModeDir|d.Mode {
				t.Errorf("%s is %v", d.Path, found[d.Path])
			}
		}
		for _, path := range []string{"/.tendril/stoma", "/opt/tendril/sprout", "/etc/passwd", "/etc/hosts"} {
			if found[path] != 0o644 {
				t.Errorf("%s is %v", path, found[path])
			}
		}
		for _, path := range places.Trust {
			if n, err := fl.find(path); err != nil || !n.mode.IsRegular() {
				t.Errorf("%s is no file: %v", path, err)
			}
		}
	})
}

// FuzzRecord: a record is taken in its own form only.
func FuzzRecord(f *testing.F) {
	good, err := json.Marshal(Record{Form: "1", Digest: "sha256:" + strings.Repeat("0", 64), Env: []string{"A=1"}, Entries: 1, Size: 1})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add(bytes.Replace(good, []byte(`"A=1"`), []byte(`"A=1","A=2"`), 1))
	f.Add(append(good, ' '))
	f.Add([]byte("{}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := parseRecord(data)
		if err != nil {
			return
		}
		if again, err := json.Marshal(r); err != nil || !bytes.Equal(again, data) {
			t.Errorf("%q was taken, and is %q: %v", data, again, err)
		}
		if !isDigest(r.Digest) || r.Size < 1 {
			t.Errorf("%+v was taken", r)
		}
	})
}

// FuzzDocument: a manifest or index is one of the two, and what is picked from an index is
// what the index has.
func FuzzDocument(f *testing.F) {
	for _, seed := range []string{
		`{"schemaVersion":2,"config":{"mediaType":"application/vnd.oci.image.config.v1+json","size":1,"digest":"sha256:00"},"layers":[]}`,
		`{"schemaVersion":2,"manifests":[{"mediaType":"application/vnd.oci.image.manifest.v1+json","size":1,"platform":{"os":"linux","architecture":"amd64"}}]}`,
		`{"schemaVersion":1}`, `{"schemaVersion":2,"manifests":[],"layers":[]}`, `[]`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		e, err := parseDocument(data)
		if err != nil {
			return
		}
		if e.Manifests != nil && (e.Layers != nil || e.Config != nil) {
			t.Errorf("%q is both", data)
		}
		if d, err := forPlatform(e.Manifests); err == nil && d.Platform != nil && d.Platform.OS != "linux" {
			t.Errorf("%q leads to %+v", data, d)
		}
	})
}

// FuzzAccounts: the account is in a passwd once, under its name and number, and the last.
func FuzzAccounts(f *testing.F) {
	f.Add([]byte("root:x:0:0::/:/bin/sh\nsprout:x:1:1::/:/bin/sh\nx:x:0070707:1::/:/bin/sh"))
	f.Add([]byte(" sprout:x:5\n\n:\n"))
	f.Fuzz(func(t *testing.T, given []byte) {
		text := string(account.Passwd(given))
		lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
		for i, line := range lines {
			fields := strings.Split(line, ":")
			if mine := fields[0] == "sprout" || len(fields) > 2 && fields[2] == "70707"; mine != (i == len(lines)-1) {
				t.Errorf("line %d of %q is %q", i, text, line)
			}
		}
		if again := string(account.Passwd([]byte(text))); again != text {
			t.Errorf("twice it is %q, once %q", again, text)
		}
	})
}
