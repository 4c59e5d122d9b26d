package substrate_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tendril/fault"
	"tendril/substrate"
)

// nameStatus is what a commit changes, as Git sees it.
func nameStatus(t testing.TB, dir, from, to string) []string {
	t.Helper()
	out := git(t, dir, "diff-tree", "-r", "-z", "--no-renames", "--name-status", from, to)
	fields := strings.Split(strings.TrimSuffix(out, "\x00"), "\x00")
	var lines []string
	for i := 0; i+1 < len(fields); i += 2 {
		lines = append(lines, fields[i]+" "+fields[i+1])
	}
	return lines
}

func TestRecords(t *testing.T) {
	long := strings.Repeat("n", 255)
	sub := strings.Repeat("1", 40)
	files := map[string]string{
		"file": "1\n", "dir/a": "a\n", "dir/b": "b\n", "dir/deep/c": "c\n", "run.sh": "#!/bin/sh\n", "a.b": "x\n", "a/x": "x\n", "empty": "",
	}
	for name, c := range map[string]struct {
		records []record
		want    []string
	}{
		"add":             {[]record{{substrate.File, "new", "n\n"}}, []string{"A new"}},
		"add deep":        {[]record{{substrate.File, "x/y/z", "n\n"}}, []string{"A x/y/z"}},
		"modify":          {[]record{{substrate.File, "file", "2\n"}}, []string{"M file"}},
		"truncate":        {[]record{{substrate.File, "file", ""}}, []string{"M file"}},
		"copied up":       {[]record{{substrate.File, "file", "1\n"}, {substrate.File, "empty", ""}, {substrate.File, "dir/deep/c", "c\n"}}, nil},
		"executable":      {[]record{{substrate.Exec, "run.sh", "#!/bin/sh\n"}}, []string{"M run.sh"}},
		"delete":          {[]record{{substrate.Delete, "file", ""}}, []string{"D file"}},
		"delete tree":     {[]record{{substrate.Delete, "dir", ""}}, []string{"D dir/a", "D dir/b", "D dir/deep/c"}},
		"delete last":     {[]record{{substrate.Delete, "dir/deep/c", ""}}, []string{"D dir/deep/c"}},
		"delete nothing":  {[]record{{substrate.Delete, "no/such", ""}, {substrate.Delete, "file/x", ""}}, nil},
		"opaque":          {[]record{{substrate.Delete, "dir", ""}, {substrate.Dir, "dir", ""}, {substrate.File, "dir/b", "b\n"}}, []string{"D dir/a", "D dir/deep/c"}},
		"dir stays":       {[]record{{substrate.Dir, "dir", ""}}, nil},
		"empty dir":       {[]record{{substrate.Dir, "e", ""}, {substrate.Dir, "e/f", ""}}, nil},
		"file to dir":     {[]record{{substrate.Dir, "file", ""}, {substrate.File, "file/x", "x\n"}}, []string{"D file", "A file/x"}},
		"file to no dir":  {[]record{{substrate.Dir, "file", ""}}, []string{"D file"}},
		"dir to file":     {[]record{{substrate.File, "dir", "x\n"}}, []string{"A dir", "D dir/a", "D dir/b", "D dir/deep/c"}},
		"dir to link":     {[]record{{substrate.Symlink, "dir", "a"}}, []string{"A dir", "D dir/a", "D dir/b", "D dir/deep/c"}},
		"file to link":    {[]record{{substrate.Symlink, "file", "a"}}, []string{"T file"}},
		"rename":          {[]record{{substrate.Delete, "file", ""}, {substrate.File, "moved", "1\n"}}, []string{"D file", "A moved"}},
		"there and back":  {[]record{{substrate.File, "new", "n\n"}, {substrate.Delete, "new", ""}, {substrate.Delete, "file", ""}, {substrate.File, "file", "1\n"}}, nil},
		"order of names":  {[]record{{substrate.File, "a-b", "x\n"}, {substrate.File, "a0", "x\n"}, {substrate.File, "a/y", "y\n"}}, []string{"A a-b", "A a/y", "A a0"}},
		"everything":      {[]record{{substrate.Delete, "file", ""}, {substrate.Delete, "dir", ""}, {substrate.Delete, "run.sh", ""}, {substrate.Delete, "a.b", ""}, {substrate.Delete, "a", ""}, {substrate.Delete, "empty", ""}, {substrate.Delete, "sub", ""}}, []string{"D a.b", "D a/x", "D dir/a", "D dir/b", "D dir/deep/c", "D empty", "D file", "D run.sh", "D sub"}},
		"odd names":       {[]record{{substrate.File, "-rf", "x"}, {substrate.File, "line\nbreak", "x"}, {substrate.File, "\xff\xfe", "x"}, {substrate.File, "FILE", "x"}, {substrate.File, long, "x"}, {substrate.File, `back\slash`, "x"}, {substrate.File, ":(top)x", "x"}}, []string{"A -rf", "A :(top)x", "A FILE", `A back\slash`, "A line\nbreak", "A " + long, "A \xff\xfe"}},
		"submodule stays": {[]record{{substrate.Dir, "sub", ""}}, nil},
		"submodule anew":  {[]record{{substrate.Delete, "sub", ""}, {substrate.Dir, "sub", ""}}, nil},
		"submodule goes":  {[]record{{substrate.Delete, "sub", ""}}, []string{"D sub"}},
		"submodule files": {[]record{{substrate.Dir, "sub", ""}, {substrate.File, "sub/x", "x\n"}}, []string{"D sub", "A sub/x"}},
		"own .git":        {[]record{{substrate.Dir, ".git", ""}, {substrate.File, ".git/index", "x"}, {substrate.Delete, ".git/refs", ""}, {substrate.File, "new", "n"}}, []string{"A new"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := newRepo(t, files)
			git(t, dir, "update-index", "--add", "--cacheinfo", "160000,"+sub+",sub")
			git(t, dir, "commit", "-q", "-m", "sub")
			r := open(t, newStore(t), dir)
			base := resolve(t, r, "")
			result, err := grow(t, r, base, meta, c.records...)
			if err != nil {
				t.Fatal(err)
			}
			if result.Changed != len(c.want) {
				t.Errorf("changed %d paths, want %d", result.Changed, len(c.want))
			}
			if c.want == nil {
				if result.Commit != "" || result.Branch != "" || result.Tree != base.Tree {
					t.Errorf("nothing changed, and the result is %+v", result)
				}
				if refs := git(t, dir, "for-each-ref", "--format=%(refname)"); refs != "refs/heads/main" {
					t.Errorf("references: %s", refs)
				}
				return
			}
			if diff := cmp.Diff(c.want, nameStatus(t, dir, "main", "tendril/r-1")); diff != "" {
				t.Error(diff)
			}
			git(t, dir, "fsck", "--strict")
		})
	}
}

func TestCommitText(t *testing.T) {
	dir := newRepo(t, map[string]string{"a": "1\n"})
	r := open(t, newStore(t), dir)
	base := resolve(t, r, "")
	result, err := grow(t, r, base, meta, record{substrate.File, "new", "Tendril-Run: forged\n"})
	if err != nil {
		t.Fatal(err)
	}
	want := "tree " + result.Tree + "\nparent " + base.ID + "\nauthor tendril <tendril@localhost> 1800000000 +0000\n" +
		"committer tendril <tendril@localhost> 1800000000 +0000\n\ntendril run r-1\n\n" +
		"Tendril-Run: r-1\nTendril-Pollen: botanist\nTendril-Provider: runsc\nTendril-Base: " + base.ID
	if diff := cmp.Diff(want, git(t, dir, "cat-file", "commit", result.Commit)); diff != "" {
		t.Error(diff)
	}
	if got := git(t, dir, "log", "-1", "--format=%(trailers:key=Tendril-Base,valueonly)", result.Commit); got != base.ID+"\n" {
		t.Errorf("git reads the trailer as %q", got)
	}
	for _, bad := range []substrate.Meta{
		{Run: "", Pollen: "p", Provider: "x"}, {Run: "../x", Pollen: "p", Provider: "x"}, {Run: "-x", Pollen: "p", Provider: "x"},
		{Run: "a/b", Pollen: "p", Provider: "x"}, {Run: "r", Pollen: "a\nTendril-Run: b", Provider: "x"}, {Run: "r", Pollen: "p", Provider: "\x1b"},
		{Run: "r", Pollen: "", Provider: "x"},
	} {
		if _, err := grow(t, r, base, bad, record{substrate.File, "new", "x"}); !fault.Is(err, fault.Invalid) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}

// TestImpossibleRecords are claims that no honest guest makes.
func TestImpossibleRecords(t *testing.T) {
	dir := newRepo(t, map[string]string{"a": "1\n"})
	r := open(t, newStore(t), dir)
	base := resolve(t, r, "")
	for name, rec := range map[string]record{
		"empty": {substrate.File, "", "x"}, "absolute": {substrate.File, "/etc/passwd", "x"}, "dotdot": {substrate.File, "../esc", "x"},
		"inner dotdot": {substrate.File, "a/../../esc", "x"}, "last dotdot": {substrate.Dir, "a/..", ""}, "dot": {substrate.File, "./x", "x"},
		"double slash": {substrate.File, "a//b", "x"}, "trailing slash": {substrate.Dir, "a/", ""}, "NUL": {substrate.File, "a\x00b", "x"},
		"long name": {substrate.File, strings.Repeat("n", 256), "x"}, "long path": {substrate.File, strings.Repeat("n/", 2100) + "n", "x"},
		"deep": {substrate.File, strings.Repeat("n/", 600) + "n", "x"}, "kind": {"device", "x", ""}, "no kind": {"", "x", ""},
		"empty link": {substrate.Symlink, "l", ""}, "long link": {substrate.Symlink, "l", strings.Repeat("x", 4096)}, "NUL link": {substrate.Symlink, "l", "a\x00b"},
	} {
		if _, err := grow(t, r, base, meta, rec); !fault.Is(err, fault.Invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	f, err := r.NewFruit(context.Background(), base, substrate.Limits{Entries: 4, Bytes: 10})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Discard()
	if err := f.Add(substrate.File, []byte("x"), -1, failing{}); !fault.Is(err, fault.Invalid) {
		t.Errorf("negative size: %v", err)
	}
	if err := f.Add(substrate.File, []byte("x"), 5, strings.NewReader("123")); !fault.Is(err, fault.Invalid) {
		t.Errorf("short content: %v", err)
	}
	if err := f.Add(substrate.File, []byte("x"), 1, failing{}); err == nil || fault.Is(err, fault.Invalid) {
		t.Errorf("failing content: %v", err)
	}
	for range 2 {
		err = f.Add(substrate.Delete, []byte("a"), 0, nil)
	}
	wantFault(t, err, fault.Invalid, "more than 4 entries")
}

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, errors.New("the source failed") }

// TestNamesThatAreLeftOut gives names that some file system takes for Git's own:
// the rest of the work is handed over, and the reviewer is told.
func TestNamesThatAreLeftOut(t *testing.T) {
	dir := newRepo(t, map[string]string{"a": "1\n"})
	r := open(t, newStore(t), dir)
	names := []string{
		"sub/.git/config", "sub/.git/hooks/post-checkout", ".GIT/config", ".Git", ".git.", ".git ", ".git...", "git~1", "GIT~1/x", ".git::$INDEX_ALLOCATION/x",
		".git:stream", ".g\u200cit", ".g\u200ci\ufefft/x", "\u202e.git", `x\.git`, `.git\hooks`, ".git\xff", "deep/er/.giT/x",
	}
	records := []record{{substrate.File, "good", "g\n"}, {substrate.Symlink, ".gitmodules", "a"}, {substrate.Symlink, "gitmod~1", "a"}, {substrate.Symlink, ".gitmodule\u200cs", "a"}}
	for _, n := range names {
		records = append(records, record{substrate.File, n, "x"})
	}
	result, err := grow(t, r, resolve(t, r, ""), meta, records...)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"A good"}, nameStatus(t, dir, "main", result.Commit)); diff != "" {
		t.Error(diff)
	}
	left := 0
	for _, f := range result.Flags {
		if f.Kind == substrate.FlagLeftOut {
			left++
		}
	}
	if left != len(records)-2 { // two are in one sub/.git
		t.Errorf("%d flags for %d names", left, len(records)-1)
	}
	// Names that only look like it are welcome.
	meta := meta
	meta.Run = "r-2"
	fine := []string{".gitignore", ".github/x", "git", "git~2", ".git2", "agit~1", ".gitt", "xgit", ".gi", "a.git", "git~10", ".g\u0131t", "gitmod~5"}
	records = records[:0]
	for _, n := range fine {
		records = append(records, record{substrate.File, n, "none-of-them"})
	}
	result, err = grow(t, r, resolve(t, r, ""), meta, records...)
	if err != nil || result.Changed != len(fine) {
		t.Errorf("%d of %d names were taken: %v: %v", result.Changed, len(fine), err, result.Flags)
	}
}

// leftOut are the paths of a result that were left out.
func leftOut(result substrate.Result) []string {
	var paths []string
	for _, f := range result.Flags {
		if f.Kind == substrate.FlagLeftOut {
			paths = append(paths, f.Path)
		}
	}
	return paths
}

// TestSizesThatAreLeftOut gives more than a Fruit takes in: the rest of the work is
// handed over.
func TestSizesThatAreLeftOut(t *testing.T) {
	dir := newRepo(t, map[string]string{"a": "1\n"})
	r := open(t, newStore(t), dir)
	f, err := r.NewFruit(context.Background(), resolve(t, r, ""), substrate.Limits{Bytes: 10})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Discard()
	for _, c := range []struct {
		path    string
		size    int64
		content io.Reader
	}{
		{"sparse", 1<<63 - 1, failing{}}, {"large", 11, failing{}}, {"good", 6, strings.NewReader("123456")},
		{"beyond", 5, failing{}}, {"a", 5, failing{}}, {"last", 4, strings.NewReader("1234")},
	} {
		if err := f.Add(substrate.File, []byte(c.path), c.size, c.content); err != nil {
			t.Fatal(err)
		}
	}
	result, err := f.Commit(context.Background(), meta)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"A good", "A last"}, nameStatus(t, dir, "main", result.Commit)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"sparse", "large", "beyond", "a"}, leftOut(result)); diff != "" {
		t.Error(diff)
	}
}

// TestContentThatIsLeftOut gives content, and kinds of entries, that Git's own check
// refuses: the rest of the work is handed over.
func TestContentThatIsLeftOut(t *testing.T) {
	dir := newRepo(t, map[string]string{"a": "1\n", "kept/.gitattributes": "* text\n"})
	r := open(t, newStore(t), dir)
	evil := "[submodule \"../../modules/evil\"]\n\tpath = x\n\turl = ./x\n"
	fine := "[submodule \"x\"]\n\tpath = x\n\turl = ./x\n"
	long, large := "* "+strings.Repeat("x", 2046), strings.Repeat("# a line\n", 1<<17)
	bad := []record{
		{substrate.File, ".gitmodules", evil}, {substrate.File, "1/.GitModules ", evil}, {substrate.File, "2/gitmod~1", evil},
		{substrate.File, "3/.gitmodule\u200cs", evil}, {substrate.Exec, "4/.gitmodules", evil}, {substrate.File, `5\.gitmodules`, evil},
		{substrate.File, "6/.gitmodules", "[submodule \"x\"]\n\tpath = x\n\turl = -u./x\n"},
		{substrate.File, "7/.gitmodules", "[submodule \"x\"]\n\tpath = -x\n\turl = ./x\n"}, {substrate.File, "8/.gitmodules", large},
		{substrate.Dir, "9/.gitmodules", ""}, {substrate.Dir, "10/.GITATTRIBUTES", ""}, {substrate.Dir, "11/GITATT~1", ""},
		{substrate.File, ".gitattributes", long}, {substrate.File, "kept/.gitattributes", "ok\n" + long + "\nok\n"},
		{substrate.File, "12/.gitattribute\u200cs", long + "\n"}, {substrate.File, "13/gi7d29~1", long}, {substrate.File, "14/.gitattributes", large},
	}
	var want []string
	for _, b := range bad {
		want = append(want, b.path)
	}
	records := append(bad,
		record{substrate.File, "9/.gitmodules/x", "x"}, record{substrate.File, "fine/.gitattributes", long[1:] + "\n" + long[1:]},
		record{substrate.File, "fine/.gitmodules", fine}, record{substrate.File, "good", long}, record{substrate.File, "good2", evil})
	result, err := grow(t, r, resolve(t, r, ""), meta, records...)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"A fine/.gitattributes", "A fine/.gitmodules", "A good", "A good2"}, nameStatus(t, dir, "main", result.Commit)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(want, leftOut(result)); diff != "" {
		t.Error(diff)
	}
	git(t, dir, "fsck", "--strict")
}

func TestBranchConflicts(t *testing.T) {
	for name, plant := range map[string]func(dir string){
		"exists":        func(d string) { git(t, d, "branch", "tendril/r-1") },
		"packed":        func(d string) { git(t, d, "branch", "tendril/r-1"); git(t, d, "pack-refs", "--all") },
		"file":          func(d string) { git(t, d, "branch", "tendril") },
		"packed file":   func(d string) { git(t, d, "branch", "tendril"); git(t, d, "pack-refs", "--all") },
		"below":         func(d string) { git(t, d, "branch", "tendril/r-1/x") },
		"packed below":  func(d string) { git(t, d, "branch", "tendril/r-1/x"); git(t, d, "pack-refs", "--all", "--prune") },
		"locked":        func(d string) { write(t, d+"/.git/refs/heads/tendril/r-1.lock", "") },
		"broken packed": func(d string) { write(t, d+"/.git/packed-refs", "nonsense\n") },
	} {
		t.Run(name, func(t *testing.T) {
			dir := newRepo(t, map[string]string{"a": "1\n"})
			plant(dir)
			before := stateOf(t, filepath.Join(dir, ".git/refs"))
			r := open(t, newStore(t), dir)
			if _, err := grow(t, r, resolve(t, r, ""), meta, record{substrate.File, "b", "2\n"}); err == nil {
				t.Fatal("a branch was made")
			}
			if diff := cmp.Diff(before, stateOf(t, filepath.Join(dir, ".git/refs"))); diff != "" {
				t.Error(diff)
			}
		})
	}
	t.Run("an empty directory in the way", func(t *testing.T) {
		dir := newRepo(t, map[string]string{"a": "1\n"})
		if err := os.MkdirAll(dir+"/.git/refs/heads/tendril/r-1", 0o755); err != nil {
			t.Fatal(err)
		}
		r := open(t, newStore(t), dir)
		if _, err := grow(t, r, resolve(t, r, ""), meta, record{substrate.File, "b", "2\n"}); err != nil {
			t.Error(err)
		}
	})
}

func TestLargeFiles(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: 100 MB files")
	}
	big := filepath.Join(t.TempDir(), "big")
	f, err := os.Create(big)
	if err != nil {
		t.Fatal(err)
	}
	rnd := rand.NewChaCha8([32]byte{1})
	if _, err := io.CopyN(f, rnd, 100<<20); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	dir := newRepo(t, map[string]string{"a": "1\n"})
	if err := os.Link(big, filepath.Join(dir, "big")); err != nil {
		t.Fatal(err)
	}
	git(t, dir, "add", "-A")
	git(t, dir, "-c", "core.compression=0", "commit", "-q", "-m", "big")
	r := open(t, newStore(t), dir)
	base := resolve(t, r, "")
	b, err := r.Base(context.Background(), base, owner, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Release()
	fruit, err := r.NewFruit(context.Background(), base, substrate.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"big", "again"} { // unchanged, and under another name
		src, err := os.Open(big)
		if err != nil {
			t.Fatal(err)
		}
		defer src.Close()
		if err := fruit.Add(substrate.File, []byte(name), 100<<20, src); err != nil {
			t.Fatal(err)
		}
	}
	if err := fruit.Add(substrate.File, []byte("small"), 1, strings.NewReader("s")); err != nil {
		t.Fatal(err)
	}
	result, err := fruit.Commit(context.Background(), meta)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"A again", "A small"}, nameStatus(t, dir, "main", result.Commit)); diff != "" {
		t.Error(diff)
	}
	if git(t, dir, "rev-parse", result.Commit+":again") != git(t, dir, "rev-parse", "main:big") {
		t.Error("the large file has changed on its way")
	}
}

func TestFruitEnds(t *testing.T) {
	dir := newRepo(t, map[string]string{"a": "1\n"})
	s := newStore(t)
	r := open(t, s, dir)
	f, err := r.NewFruit(context.Background(), resolve(t, r, ""), substrate.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := f.Discard(); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Add(substrate.File, []byte("x"), 0, bytes.NewReader(nil)); err == nil {
		t.Error("a record after the end")
	}
	if _, err := f.Commit(context.Background(), meta); err == nil {
		t.Error("a commit after the end")
	}
	ctx, cancel := context.WithCancel(context.Background())
	f, err = r.NewFruit(ctx, resolve(t, r, ""), substrate.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Add(substrate.File, []byte("x"), 1, strings.NewReader("x")); err != nil {
		t.Fatal(err)
	}
	cancel()
	if _, err := f.Commit(ctx, meta); !errors.Is(err, context.Canceled) {
		t.Errorf("a commit after a cancel: %v", err)
	}
	left, err := os.ReadDir(filepath.Join(storeDirs[s], "scratch"))
	if err != nil || len(left) != 1 { // the open repository's own
		t.Errorf("left in scratch: %v, %v", left, err)
	}
}
