//go:build linux

package guest_test

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tendril/stoma"
)

// writeFiles fills a base tree: path → content; a path that ends in a slash is a
// directory.
func writeFiles(t *testing.T, files map[string]string) func(string) {
	return func(dir string) {
		for name, content := range files {
			path := filepath.Join(dir, name)
			if strings.HasSuffix(name, "/") {
				if err := os.MkdirAll(path, 0o755); err != nil {
					t.Fatal(err)
				}
				continue
			}
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// collect returns the records as lines "kind path content".
func collect(t *testing.T, c *stoma.Client) ([]string, stoma.Summary) {
	t.Helper()
	var lines []string
	s, err := c.Collect(ctx(t), func(r stoma.Record) error {
		line := fmt.Sprintf("%s %s", r.Kind, r.Path)
		if r.Kind == stoma.File || r.Kind == stoma.Exec || r.Kind == stoma.Symlink {
			b, err := io.ReadAll(r.Content)
			if err != nil {
				return err
			}
			line += " " + string(b)
		}
		lines = append(lines, line)
		return nil
	})
	if err != nil {
		t.Fatalf("collect: %v", err)
	}
	slices.Sort(lines)
	return lines, s
}

// inWorkspace runs a script in the workspace and wants it to work.
func inWorkspace(t *testing.T, c *stoma.Client, script string) {
	t.Helper()
	r := request("sh", "-ec", script)
	r.Dir = "/workspace"
	wantCode(t, do(t, c, r, ""), 0)
}

func TestCollect(t *testing.T) {
	base := map[string]string{
		"keep":           "same",
		"edit":           "old",
		"gone":           "x",
		"mode":           "#!",
		"dir/inner":      "1",
		"dir/other":      "2",
		"whole/a":        "a",
		"whole/deep/b":   "b",
		"swap/x":         "x",
		"todir":          "file",
		"opaque/old":     "o",
		"opaque/stays":   "s",
		"moved/file":     "m",
		"link":           "l",
		".git/HEAD":      "ref",
		"build/tracked":  "t",
		"build/.gitkeep": "",
		".gitignore":     "*.log\nbuild/\nnode_modules\n!important.log\n",
		"sub/.gitignore": "secret\n",
	}
	want := []string{
		"delete gone",
		"delete moved",
		"delete opaque/stays",
		"delete swap",
		"delete todir",
		"delete whole",
		"dir newdir",
		"dir newdir/empty",
		"dir renamed",
		"dir todir",
		"exec mode #!",
		"exec run.sh #!/bin/sh\n",
		"file dir/inner changed\n",
		"file edit new\n",
		"file important.log i\n",
		"file locked l\n",
		"file newdir/f f\n",
		"file opaque/old o2\n",
		"file renamed/file m",
		"file swap now a file\n",
		"file todir/t t\n",
		"file build/tracked t2\n",
		"file sub/open o\n",
		"symlink link /etc/passwd",
		"dir shut",
		"file shut/in s\n",
		"skip newdir/.git",
		"skip pipe",
	}
	want = slices.DeleteFunc(want, func(s string) bool { return s == "delete todir" || s == "delete swap" })
	slices.Sort(want)
	onEach(t, setup{base: writeFiles(t, base)}, func(t *testing.T, c *stoma.Client) {
		inWorkspace(t, c, `
			echo new >edit; rm gone; chmod +x mode; echo changed >dir/inner
			rm -r whole swap; echo now a file >swap
			rm todir; mkdir todir; echo t >todir/t
			rm -r opaque; mkdir opaque; echo o2 >opaque/old
			mv moved renamed
			rm link; ln -s /etc/passwd link
			mkdir -p newdir/empty; echo f >newdir/f
			printf '#!/bin/sh\n' >run.sh; chmod 755 run.sh
			echo l >locked; chmod 0 locked
			mkdir shut; echo s >shut/in; chmod 0 shut
			echo x >.git/HEAD; rm -f .git/HEAD
			mkdir -p newdir/.git; echo hook >newdir/.git/config
			mkfifo pipe
			echo a >a.log; echo i >important.log
			mkdir node_modules; echo n >node_modules/n
			echo t2 >build/tracked; echo u >build/untracked
			echo s >sub/secret; echo o >sub/open
		`)
		got, s := collect(t, c)
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("records (-want +got):\n%s", d)
		}
		if s.Ignored != 4 {
			t.Errorf("%d ignored, want a.log, node_modules, build/untracked and sub/secret", s.Ignored)
		}
		if s.Skipped != 2 {
			t.Errorf("%d skipped, want the nested .git and a FIFO", s.Skipped)
		}
		// It can be asked again, and commands run again.
		again, _ := collect(t, c)
		if d := cmp.Diff(want, again); d != "" {
			t.Errorf("second time (-want +got):\n%s", d)
		}
		inWorkspace(t, c, "rm edit")
	})
}

// TestCollectHostile has a Sprout leave behind what is hard to walk.
func TestCollectHostile(t *testing.T) {
	base := map[string]string{"d/keep": "k", "e/keep": "k", "big/0": ""}
	onEach(t, setup{base: writeFiles(t, base)}, func(t *testing.T, c *stoma.Client) {
		inWorkspace(t, c, `
			ln -s /etc/passwd .gitignore
			printf 'x' >"$(printf 'line\nbreak')"; printf 'x' >"$(printf 'bad\377utf8')"; printf x >-rf
			rm -r d; ln -s /etc d
			mv e e2; mkdir e; ln e2/keep e/hard
			ln -s . loop; ln -s /proc/1/root esc
			i=0; while [ $i -lt 2000 ]; do : >big/f$i; i=$((i+1)); done
			mkdir gi; mkdir gi/.gitignore; : >gi/f
			mkdir big/.git; : >big/.git/config; printf 'gitdir: /tmp' >gi/.git
			chmod 0 big/f7 gi
		`)
		r := sh(`i=0; while [ $i -lt 600 ]; do mkdir deep && cd deep || exit 0; i=$((i+1)); done; : >bottom`)
		r.Dir = "/workspace"
		do(t, c, r, "")
		inWorkspace(t, c, "chmod 0 .")
		got, s := collect(t, c)
		var odd []string
		deep, big := 0, 0
		for _, l := range got {
			switch {
			case strings.HasPrefix(l, "dir deep"):
				deep++
			case strings.HasPrefix(l, "file big/f"):
				big++
			default:
				odd = append(odd, l)
			}
		}
		want := []string{
			"dir e2",
			"dir gi",
			"dir gi/.gitignore",
			"delete e/keep",
			"file -rf x",
			"file bad\xffutf8 x",
			"file e/hard k",
			"file e2/keep k",
			"file gi/f ",
			"file line\nbreak x",
			"skip big/.git",
			"skip gi/.git",
			"skip " + strings.Repeat("deep/", 256) + "deep",
			"symlink .gitignore /etc/passwd",
			"symlink d /etc",
			"symlink esc /proc/1/root",
			"symlink loop .",
		}
		slices.Sort(want)
		if d := cmp.Diff(want, odd); d != "" {
			t.Errorf("records (-want +got):\n%s", d)
		}
		if deep != 256 || big != 2000 {
			t.Errorf("%d deep and %d big records", deep, big)
		}
		if s.Skipped != 3 {
			t.Errorf("%d skipped, want two .git and what lies too deep", s.Skipped)
		}
	})
}

// TestCollectSparse has a file that claims to be larger than the disk that holds it.
// It stays behind by name, and the rest is handed over.
func TestCollectSparse(t *testing.T) {
	onEach(t, setup{}, func(t *testing.T, c *stoma.Client) {
		inWorkspace(t, c, "truncate -s 4E sparse || truncate -s 1T sparse")
		inWorkspace(t, c, "echo x >f")
		got, s := collect(t, c)
		if d := cmp.Diff([]string{"file f x\n", "skip sparse"}, got); d != "" {
			t.Errorf("records (-want +got):\n%s", d)
		}
		if s.Skipped != 1 {
			t.Errorf("%d skipped, want the sparse file", s.Skipped)
		}
	})
}

// TestCollectEndsCommands collects while a command runs and writes.
func TestCollectEndsCommands(t *testing.T) {
	onEach(t, setup{}, func(t *testing.T, c *stoma.Client) {
		r := sh("echo ready; while :; do echo x >>f; done")
		r.Dir = "/workspace"
		p := begin(t, c, r)
		first, _ := collect(t, c)
		second, _ := collect(t, c)
		if d := cmp.Diff(first, second); d != "" || len(first) > 1 {
			t.Errorf("it went on writing: %s", d)
		}
		if exit, err := p.Wait(ctx(t)); err != nil || exit.Signal == nil {
			t.Errorf("exit %s, %v", show(exit), err)
		}
	})
}

func TestCollectNothing(t *testing.T) {
	base := map[string]string{"a": "a", "d/b": "b"}
	onEach(t, setup{base: writeFiles(t, base)}, func(t *testing.T, c *stoma.Client) {
		inWorkspace(t, c, "cat a d/b; ls -R; : >new; rm new; mkdir x; rmdir x")
		if got, s := collect(t, c); len(got) != 0 || s != (stoma.Summary{}) {
			t.Errorf("records %q, summary %+v", got, s)
		}
	})
}
