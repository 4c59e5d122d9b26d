//go:build linux

package guest_test

import (
	"archive/tar"
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"tendril/stoma"
)

func plainGround() ground {
	return grounds[slices.IndexFunc(grounds, func(g ground) bool { return g.plain })]
}

// TestPlainPID1 is about what the Sprout can do to a process of its own account: send it
// what it likes, and to no effect.
func TestPlainPID1(t *testing.T) {
	c := open(t, plainGround(), setup{})
	wantOutput(t, c, `grep -E '^(Cap(Inh|Prm|Eff|Bnd|Amb)|NoNewPrivs|Uid)' /proc/1/status | tr '\t' ' '`,
		"Uid: 70707 70707 70707 70707\nCapInh: 0000000000000000\nCapPrm: 0000000000000000\nCapEff: 0000000000000000\n"+
			"CapBnd: 0000000000000000\nCapAmb: 0000000000000000\nNoNewPrivs: 1\n")
	for _, attack := range []string{
		"echo x >/proc/1/fd/0", "echo x >/proc/1/fd/1", "echo x >/proc/1/fd/2", "ls /proc/1/fd/", "cat /proc/1/environ",
		"dd if=/proc/1/mem bs=1 count=1", "cat /proc/1/maps", "echo 1000 >/proc/1/oom_score_adj", "ls /proc/1/root/ /proc/1/cwd/",
	} {
		if r := do(t, c, sh(attack), ""); r.exit.Code == nil || *r.exit.Code == 0 {
			t.Errorf("%s: exit %s, stdout %q", attack, show(r.exit), r.stdout)
		}
	}
	wantCode(t, do(t, c, sh(`i=1; while [ $i -le 64 ]; do kill -$i 1; i=$((i+1)); done; kill -KILL 1; kill -STOP 1`), ""), 0)
	// Each thread of it, by tkill(2), and everything else of the account.
	wantCode(t, do(t, c, request("perl", "-e", `for my $s (1..64) { for (glob "/proc/1/task/*") { s,.*/,,; syscall(`+strconv.Itoa(unix.SYS_TKILL)+`, int, $s) } }`), ""), 0)
	do(t, c, sh("kill -KILL -1"), "")
	wantCode(t, do(t, c, request("true"), ""), 0)
	// Whoever runs short of memory takes the Sprout.
	wantOutput(t, c, "cat /proc/self/oom_score_adj; (cat /proc/self/oom_score_adj)", "1000\n1000\n")
	wantOutput(t, c, "i=0; until [ $(cat /proc/1/oom_score_adj) -lt 1000 ] || [ $i = 1000 ]; do i=$((i+1)); done; [ $i -lt 1000 ] && echo less", "less\n")
}

// TestPlant: the base is as it was, times and modes included, and only what differs from it
// is collected, also when nothing but the content does.
func TestPlant(t *testing.T) {
	then := time.Unix(1_600_000_000, 123456789)
	base := func(dir string) {
		writeFiles(t, map[string]string{"keep": "same", "edit": "old", "touched": "same", "mode": "x", "dir/deep/er": "1", "gone/a": "a", ".git/HEAD": "ref"})(dir)
		for _, path := range []string{"keep", "edit", "dir/deep/er", "dir/deep", "dir"} {
			if err := os.Chtimes(filepath.Join(dir, path), then, then); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Chmod(filepath.Join(dir, "mode"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink("keep", filepath.Join(dir, "link")); err != nil {
			t.Fatal(err)
		}
	}
	c := open(t, plainGround(), setup{base: base})
	if got, _ := collect(t, c); len(got) != 0 {
		t.Errorf("of an untouched base %q is collected", got)
	}
	wantOutput(t, c, "cd /workspace && stat -c '%n %a %u %.9Y' keep mode dir/deep dir/deep/er && readlink link && cat .git/HEAD",
		"keep 644 70707 1600000000.123456789\nmode 755 70707 "+strings.TrimSpace(do(t, c, sh("stat -c %.9Y /workspace/mode"), "").stdout)+"\n"+
			"dir/deep 755 70707 1600000000.123456789\ndir/deep/er 644 70707 1600000000.123456789\nkeep\nref")
	// The same size and the same time, which anybody can set.
	inWorkspace(t, c, `printf new >edit; touch -d @1600000000.123456789 edit; touch touched; rm -r gone; chmod 644 mode; mv dir moved; echo x >.git/HEAD`)
	got, _ := collect(t, c)
	want := []string{"delete dir", "delete gone", "dir moved", "dir moved/deep", "file edit new", "file mode x", "file moved/deep/er 1", "file touched same"}
	if !slices.Equal(got, want) {
		t.Errorf("collected %q, want %q", got, want)
	}
	// What is put in later is new.
	if err := c.Put(ctx(t), "", archive(t, tar.Header{Name: "late", Typeflag: tar.TypeReg, Mode: 0o644, Size: 2})); err != nil {
		t.Fatal(err)
	}
	if got, _ := collect(t, c); !slices.Contains(got, "file late xx") {
		t.Errorf("collected %q", got)
	}
	if err := c.Plant(ctx(t), tarOf(t, makeBase(t, setup{}))); err == nil || !strings.Contains(err.Error(), "comes once") {
		t.Errorf("a second base: %v", err)
	}
}

// TestPlantRefuses what no base is.
func TestPlantRefuses(t *testing.T) {
	for says, headers := range map[string][]tar.Header{
		"did not come before": {{Name: "a/b", Typeflag: tar.TypeReg}},
		"not a name":          {{Name: "..", Typeflag: tar.TypeDir}},
		"nothing else":        {{Name: "null", Typeflag: tar.TypeChar}},
		"file exists":         {{Name: "a", Typeflag: tar.TypeReg}, {Name: "a", Typeflag: tar.TypeReg}},
		"did not come before it": {
			{Name: "out", Typeflag: tar.TypeSymlink, Linkname: "/tmp"}, {Name: "out/x", Typeflag: tar.TypeReg},
		},
	} {
		g := plainGround()
		g.plain = false // the test brings the base itself
		c := open(t, g, setup{})
		if err := c.Plant(ctx(t), archive(t, headers...)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v", says, err)
		}
		wantCode(t, do(t, c, request("true"), ""), 0)
	}
	c := open(t, grounds[0], setup{})
	if err := c.Plant(ctx(t), bytes.NewReader(nil)); err == nil || !strings.Contains(err.Error(), "was there when it was made") {
		t.Errorf("a base for an overlay: %v", err)
	}
}

// TestPlainDisk: what is used is counted beside the base, and told when it is full.
func TestPlainDisk(t *testing.T) {
	c := open(t, plainGround(), setup{size: 8 << 20, base: func(dir string) {
		if err := os.WriteFile(filepath.Join(dir, "big"), make([]byte, 2<<20), 0o644); err != nil {
			t.Fatal(err)
		}
	}})
	stat := func() stoma.Stat {
		s, err := c.Stat(ctx(t))
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	if s := stat(); s.ScratchSize != 8<<20 || s.ScratchUsed > 64<<10 || s.ScratchFull() {
		t.Errorf("with nothing but the base: %+v", s)
	}
	inWorkspace(t, c, "head -c 3000000 /dev/zero >more")
	if s := stat(); s.ScratchUsed < 3_000_000 || s.ScratchUsed > 3_200_000 {
		t.Errorf("with 3 MB more: %+v", s)
	}
}
