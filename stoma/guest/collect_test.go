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
		if s.Skipped != 3 {
			t.Errorf("%d skipped, want two .git and a FIFO", s.Skipped)
		}
		// It can be asked again, and commands run again.
		again, _ := collect(t, c)
		if d := cmp.Diff(want, again); d != "" {
			t.Errorf("second time (-want +got):\n%s", d)
		}
		inWorkspace(t, c, "rm edit")
	})
}
