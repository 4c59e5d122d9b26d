//go:build linux

package guest_test

import (
	"archive/tar"
	"bytes"
	"strings"
	"testing"

	"tendril/stoma"
)

func TestWritable(t *testing.T) {
	s := setup{root: true, args: []string{"--writable", "/var/tmp"}}
	onEach(t, s, func(t *testing.T, c *stoma.Client) {
		wantCode(t, do(t, c, sh("echo x >/var/tmp/f && [ $(stat -c %a:%u /var/tmp) = 1777:70707 ]"), ""), 0)
		wantCode(t, do(t, c, sh("dd if=/dev/zero of=/var/tmp/big bs=1M count=65"), ""), 1)
	})
}

// archive makes a tar.
func archive(t *testing.T, headers ...tar.Header) *bytes.Buffer {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range headers {
		content := strings.Repeat("x", int(h.Size))
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(content)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return &b
}

func TestPut(t *testing.T) {
	base := map[string]string{"old": "old", "dir/f": "f"}
	onEach(t, setup{base: writeFiles(t, base)}, func(t *testing.T, c *stoma.Client) {
		err := c.Put(ctx(t), "in/here", archive(t,
			tar.Header{Name: "d/", Typeflag: tar.TypeDir, Mode: 0o755},
			tar.Header{Name: "d/file", Typeflag: tar.TypeReg, Mode: 0o644, Size: 3 << 20},
			tar.Header{Name: "deep/er/run", Typeflag: tar.TypeReg, Mode: 0o755, Size: 2},
			tar.Header{Name: "link", Typeflag: tar.TypeSymlink, Linkname: "/etc/passwd"},
		))
		if err != nil {
			t.Fatal(err)
		}
		inWorkspace(t, c, `
			[ $(stat -c %s:%u:%a in/here/d/file) = 3145728:70707:644 ]
			[ -x in/here/deep/er/run ] && [ $(readlink in/here/link) = /etc/passwd ]`)
		if err := c.Put(ctx(t), "", archive(t, tar.Header{Name: "old", Typeflag: tar.TypeReg, Mode: 0o644, Size: 1})); err != nil {
			t.Fatal(err)
		}
		inWorkspace(t, c, `[ $(cat old) = x ]`)

		// A link that the Sprout planted leads nowhere.
		inWorkspace(t, c, "ln -s /tmp out; ln -s ../../tmp up")
		for name, h := range map[string]tar.Header{
			"absolute":     {Name: "/tmp/x", Typeflag: tar.TypeReg, Mode: 0o644},
			"upwards":      {Name: "../x", Typeflag: tar.TypeReg, Mode: 0o644},
			"link":         {Name: "out/x", Typeflag: tar.TypeReg, Mode: 0o644},
			"link upwards": {Name: "up/x", Typeflag: tar.TypeReg, Mode: 0o644},
			"device":       {Name: "dev", Typeflag: tar.TypeChar, Mode: 0o644},
			"hard link":    {Name: "hard", Typeflag: tar.TypeLink, Linkname: "old"},
		} {
			if err := c.Put(ctx(t), "", archive(t, h)); err == nil {
				t.Errorf("%s: unpacked", name)
			}
		}
		for _, dir := range []string{"../tmp", "/tmp", "out", "old"} {
			if err := c.Put(ctx(t), dir, archive(t, tar.Header{Name: "x", Typeflag: tar.TypeReg, Mode: 0o644})); err == nil {
				t.Errorf("put into %s: unpacked", dir)
			}
		}
		wantOutput(t, c, "ls /tmp/x", "")
		if err := c.Put(ctx(t), "", strings.NewReader("this is no tar, and it is longer than one block of it is"+strings.Repeat(".", 1000))); err == nil {
			t.Error("garbage was unpacked")
		}
		wantCode(t, do(t, c, request("true"), ""), 0)
	})
}

// TestFullOfFiles: a scratch that holds as many files as it can is full, however little is in
// them.
func TestFullOfFiles(t *testing.T) {
	onEach(t, setup{size: 8 << 20, few: true}, func(t *testing.T, c *stoma.Client) {
		full := func() bool {
			st, err := c.Stat(ctx(t))
			if err != nil {
				t.Fatal(err)
			}
			return st.ScratchFull()
		}
		if full() {
			t.Error("full before anything is written")
		}
		r := sh("i=0; while [ $i -lt 200 ]; do : >$i || exit 9; i=$((i+1)); done")
		r.Dir = "/workspace"
		wantCode(t, do(t, c, r, ""), 2)
		if !full() {
			t.Error("no file can be made any more, and it is not full")
		}
	})
}

func TestFullScratch(t *testing.T) {
	onEach(t, setup{size: 8 << 20}, func(t *testing.T, c *stoma.Client) {
		r := sh("dd if=/dev/zero of=big bs=1M count=20")
		r.Dir = "/workspace"
		wantCode(t, do(t, c, r, ""), 1)
		st, err := c.Stat(ctx(t))
		if err != nil || st.ScratchSize != 8<<20 || st.ScratchUsed < 7<<20 {
			t.Errorf("stat %+v, %v", st, err)
		}
		// What is there can still be handed over.
		got, _ := collect(t, c)
		if len(got) != 1 || !strings.HasPrefix(got[0], "file big") {
			t.Errorf("%d records", len(got))
		}
	})
}
