package substrate_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"tendril/substrate"
)

var id1, id2 = strings.Repeat("1", 40), strings.Repeat("ab", 20)

func FuzzPackedRefs(f *testing.F) {
	f.Add([]byte("# pack-refs with: peeled fully-peeled sorted \n"+id1+" refs/heads/main\n"+id2+" refs/tags/v1\n^"+id1+"\n"), "refs/tags/v1")
	f.Add([]byte(id1+" refs/heads/../../x\n"), "refs/heads/x")
	f.Add([]byte(id1+" refs/heads/main"), "")
	f.Add([]byte("^"+id1+"\n\n \n"), "")
	f.Fuzz(func(t *testing.T, data []byte, drop string) {
		refs := func(data []byte) (names []string, err error) {
			err = substrate.ParsePackedRefs(data, substrate.SHA1, func(id, ref string) bool {
				if substrate.CheckRefName(ref) != nil || len(id) != 40 {
					t.Fatalf("%q at %q", ref, id)
				}
				names = append(names, ref)
				return true
			})
			return names, err
		}
		before, err := refs(data)
		if err != nil {
			return
		}
		after, err := refs(substrate.WithoutRef(data, drop))
		if err != nil {
			t.Fatalf("without %q it is malformed: %v", drop, err)
		}
		var want []string
		for _, name := range before {
			if name != drop {
				want = append(want, name)
			}
		}
		if fmt.Sprint(after) != fmt.Sprint(want) {
			t.Fatalf("without %q: %q, want %q", drop, after, want)
		}
	})
}

func FuzzRef(f *testing.F) {
	for _, s := range []string{id1 + "\n", "ref: refs/heads/main\n", "ref:\trefs/heads/x", "ref: ../../x", "ref: HEAD", "", "ref: refs/heads/a\nref: b", id1 + id1} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		id, target, err := substrate.ParseRef(data, substrate.SHA1)
		if err != nil {
			return
		}
		if (id == "") == (target == "") || id != "" && len(id) != 40 {
			t.Fatalf("id %q, target %q", id, target)
		}
		if target != "" && (!filepath.IsLocal(target) || !strings.HasPrefix(target, "refs/")) {
			t.Fatalf("target %q", target)
		}
	})
}

func FuzzGitFile(f *testing.F) {
	for _, s := range []string{"gitdir: ../.git/worktrees/x\n", "gitdir: ", "gitdir: a\nb", "gitdir: \x00", "gitdir:x"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		path, err := substrate.ParseGitFile(data)
		if err == nil && (path == "" || strings.ContainsAny(path, "\x00\n")) {
			t.Fatalf("path %q", path)
		}
	})
}

func FuzzAlternate(f *testing.F) {
	for _, s := range []string{"/a/b", `"quoted"`, `"a\"b\\c\001"`, `"a`, `"\x"`, "\xff", `"\400"`, `"é\303\251"`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, line string) {
		if line != "" {
			path, err := substrate.UnquoteAlternate(line)
			if err == nil && (path == "" || strings.ContainsAny(path, "\x00\n")) {
				t.Fatalf("path %q", path)
			}
		}
		if line == "" || strings.ContainsAny(line, "\x00\n") || strings.TrimRight(line, "\r\n") != line || len(line) > 4000 {
			return
		}
		quoted := substrate.QuoteAlternate(line)
		if got, err := substrate.UnquoteAlternate(quoted); err != nil || got != line {
			t.Fatalf("%q, quoted %q, is read as %q, %v", line, quoted, got, err)
		}
	})
}

func FuzzTree(f *testing.F) {
	raw := strings.Repeat("\x11", 20)
	f.Add([]byte("100644 a\x00" + raw + "40000 b\x00" + raw))
	f.Add([]byte("100644 ..\x00" + raw))
	f.Add([]byte("040000 .GIT\x00" + raw))
	f.Add([]byte("100664 a b\x00" + raw + "120000 .gitmodules\x00" + raw))
	f.Add([]byte("100644 a.b\x00" + raw + "40000 a\x00" + raw))
	f.Fuzz(func(t *testing.T, data []byte) {
		entries, err := substrate.ParseTree(data, substrate.SHA1)
		if err != nil {
			return
		}
		again, err := substrate.FormatTree(entries)
		if err != nil {
			t.Fatal(err)
		}
		normal := bytes.ReplaceAll(bytes.ReplaceAll(data, []byte("100664 "), []byte("100644 ")), []byte("040000 "), []byte("40000 "))
		if !bytes.Equal(again, data) && len(again) > len(normal) {
			t.Fatalf("%q is formatted as %q", data, again)
		}
		if _, err := substrate.ParseTree(again, substrate.SHA1); err != nil {
			t.Fatalf("its own output %q: %v", again, err)
		}
	})
}

func FuzzCommit(f *testing.F) {
	f.Add([]byte("tree " + id1 + "\nauthor A <a> 1 +0000\ncommitter A <a> 1700000000 +0000\n\nx\n"))
	f.Add([]byte("tree " + id1 + "\ncommitter A > 9999999999999999999 +0000\n"))
	f.Add([]byte("tree x\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := substrate.ParseCommit(data, substrate.SHA1)
		if err == nil && (len(c.Tree) != 40 || c.Time.IsZero()) {
			t.Fatalf("%+v", c)
		}
	})
}

func FuzzAnswersOfGit(f *testing.F) {
	f.Add(":100644 100644 " + id1 + " " + id2 + " M\x00a\x00:100644 000000 " + id1 + " " + id2 + " R100\x00a\x00b\x00")
	f.Add("file:.git/config\x00core.bare\nfalse\x00command line:\x00a.b\x00")
	f.Add(":\x00\x00")
	f.Fuzz(func(t *testing.T, out string) {
		_, _ = substrate.ParseRawDiff(out)
		_, _ = substrate.ParseConfigList(out)
		_ = substrate.ParseShallow([]byte(out), substrate.SHA1)
	})
}

func FuzzPath(f *testing.F) {
	for _, s := range []string{"a/b", "../x", "/etc", "", "a//b", ".", "a/..", "a\x00", strings.Repeat("n", 256), strings.Repeat("n/", 600), "-rf", "\xff"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, path string) {
		if substrate.CheckPath(path) == nil && (!filepath.IsLocal(path) || filepath.Clean(path) != path || path == ".") {
			t.Fatalf("%q was taken", path)
		}
	})
}

func FuzzEscape(f *testing.F) {
	for _, s := range []string{"a\tb", "\x1b[2J", "\u202e", "\xff\xfe", `\x1b`, "\u2066", "é"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		out := substrate.Escape(s)
		if !utf8.ValidString(out) {
			t.Fatalf("Escape(%q) is not UTF-8", s)
		}
		for _, r := range out {
			if r != '\t' && !unicode.IsGraphic(r) && unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp) {
				t.Fatalf("Escape(%q) holds %U", s, r)
			}
		}
	})
}

// FuzzRecords gives the importer arbitrary records, and checks what came in with
// Git.
func FuzzRecords(f *testing.F) {
	rec := func(kind byte, path, content string) string {
		return string([]byte{kind, byte(len(path)), byte(len(content))}) + path + content
	}
	f.Add([]byte(rec(0, "a", "x") + rec(3, "d", "") + rec(2, "l", "../../x")))
	f.Add([]byte(rec(0, ".git/config", "x") + rec(0, "d/.GIT/x", "y") + rec(4, "a", "") + rec(0, "a/b", "z")))
	f.Add([]byte(rec(2, ".gitmodules", "x") + rec(0, ".gitignore", "*\n") + rec(0, "z", "z")))
	f.Add([]byte(rec(0, "../x", "x")))
	f.Add([]byte(rec(0, ".gitmodules", "[submodule \"a\"]\n\turl = -x\n")))
	dir := newRepo(f, map[string]string{"a": "1\n", "d/b": "2\n", "d/e/f": "3\n"})
	store := newStore(f)
	r := open(f, store, dir)
	base := resolve(f, r, "")
	n := 0
	f.Fuzz(func(t *testing.T, data []byte) {
		fruit, err := r.NewFruit(context.Background(), base, substrate.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		defer fruit.Discard()
		kinds := []substrate.Kind{substrate.File, substrate.Exec, substrate.Symlink, substrate.Delete, substrate.Dir, "other"}
		for len(data) >= 3 {
			kind, pathLen, size := kinds[int(data[0])%len(kinds)], int(data[1]), int64(data[2])
			data = data[3:]
			path := data[:min(pathLen, len(data))]
			data = data[len(path):]
			content := bytes.NewReader(data[:min(int(size), len(data))])
			data = data[content.Len():]
			if err := fruit.Add(kind, path, size, content); err != nil {
				return
			}
		}
		n++
		m := meta
		m.Run = fmt.Sprintf("r-%d-%d", binary.BigEndian.Uint32(append([]byte{0, 0, 0, 0}, data...)), n)
		result, err := fruit.Commit(context.Background(), m)
		if err != nil || result.Commit == "" {
			return
		}
		for line := range strings.SplitSeq(git(t, dir, "ls-tree", "-r", "-t", "-z", "--full-tree", result.Commit), "\x00") {
			meta, path, _ := strings.Cut(line, "\t")
			if line != "" && (substrate.CheckPath(path) != nil || substrate.RefuseName(filepath.Base(path), strings.HasPrefix(meta, "120000")) != "") {
				t.Fatalf("%q came in", path)
			}
		}
		if out, err := tryGit(t, dir, "", "fsck", "--strict", "--connectivity-only"); err != nil {
			t.Fatal(out)
		}
		if err := r.Reject(context.Background(), m.Run, result.Commit); err != nil {
			t.Fatal(err)
		}
	})
}

// TestRefNamesAgreeWithGit never takes a name that Git would not.
func TestRefNamesAgreeWithGit(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{
		"refs/heads/main", "refs/heads/-x", "refs/heads/a..b", "refs/heads/a.", "refs/heads/.a", "refs/heads/a.lock", "refs/heads/a.lock/b", "refs/heads//a",
		"refs/heads/a/", "/refs/heads/a", "refs/heads/a b", "refs/heads/a\x1b", "refs/heads/a\n", "refs/heads/a~1", "refs/heads/a^", "refs/heads/a:b",
		"refs/heads/a?", "refs/heads/a*", "refs/heads/[a", `refs/heads/a\b`, "refs/heads/@", "refs/heads/@{x", "refs/heads/é", "refs/heads/\xff", "refs/heads/a\x7f",
		"refs/heads/x.y/z", "refs/heads/tendril/r-1",
	} {
		_, err := tryGit(t, dir, "", "check-ref-format", name)
		if ours := substrate.CheckRefName(name); (ours == nil) != (err == nil) {
			t.Errorf("%q: we say %v, git says %v", name, ours, err)
		}
	}
}
