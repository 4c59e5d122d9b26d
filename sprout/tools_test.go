package sprout

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"unicode/utf8"
)

// place is a workplace in a directory beside which there is a secret.
func place(t *testing.T) (*workplace, string) {
	t.Helper()
	top := t.TempDir()
	put(t, top, "secret", "hidden\n")
	dir := filepath.Join(top, "work")
	put(t, dir, "plain", "one\ntwo\nthree\n")
	w, err := openWorkplace(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.close)
	return w, dir
}

func (w *workplace) do(t *testing.T, name string, input map[string]any) (result, bool) {
	t.Helper()
	text, err := json.Marshal(input)
	if err != nil {
		t.Fatal(err)
	}
	r, sense := perform(t.Context(), w.tools(), call{id: "a", name: name, input: string(text)})
	if len(r.text) > maxResult || !utf8.ValidString(r.text) {
		t.Errorf("%s: the result has %d bytes and is valid %t", name, len(r.text), utf8.ValidString(r.text))
	}
	return r, sense
}

type step struct {
	tool   string
	input  map[string]any
	want   string // in the result
	failed bool
}

func TestTools(t *testing.T) {
	w, dir := place(t)
	put(t, dir, "bin", "a\x00b")
	put(t, dir, "latin", "gr\xfcn\n")
	put(t, dir, "long", strings.Repeat("木", 5000)+"\nend\n")
	put(t, dir, "deep/er/file.go", "func one()\nfunc two()\n")
	put(t, dir, "deep/.gitignore", "ignored*\n")
	put(t, dir, "deep/ignored/ignored.go", "func three()\n")
	put(t, dir, ".git/config", "func four()\n")
	if err := syscall.Mkfifo(filepath.Join(dir, "fifo"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, s := range []step{
		{"read", map[string]any{"path": "plain"}, "1\tone\n2\ttwo\n3\tthree\n", false},
		{"read", map[string]any{"path": dir + "/plain", "first_line": 2, "lines": 1}, "2\ttwo\n[more follows: first_line 3]", false},
		{"read", map[string]any{"path": "plain", "first_line": 9}, "[the file has 3 lines]", false},
		{"read", map[string]any{"path": "absent"}, "no such file", true},
		{"read", map[string]any{"path": "bin"}, "no text", true},
		{"read", map[string]any{"path": "latin"}, "1\tgr?n\n", false},
		{"read", map[string]any{"path": "long"}, "2\tend\n", false},
		{"read", map[string]any{"path": "deep"}, "no regular file", true},
		{"read", map[string]any{"path": "fifo"}, "no regular file", true},
		{"write", map[string]any{"path": "fifo", "content": "x"}, "fifo", true},
		{"write", map[string]any{"path": "a/b/c", "content": "new\n"}, "wrote 4 bytes", false},
		{"read", map[string]any{"path": "a/b/c"}, "1\tnew\n", false},
		{"write", map[string]any{"path": "a/b/c", "content": ""}, "wrote 0 bytes", false},
		{"read", map[string]any{"path": "a/b/c"}, "[the file has 0 lines]", false},
		{"write", map[string]any{"path": "deep", "content": "x"}, "deep", true},
		{"edit", map[string]any{"path": "plain", "old": "two\n", "new": "2\n"}, "edited line 2", false},
		{"read", map[string]any{"path": "plain"}, "1\tone\n2\t2\n3\tthree\n", false},
		{"edit", map[string]any{"path": "plain", "old": "two", "new": "2"}, "does not occur", true},
		{"edit", map[string]any{"path": "plain", "old": "e", "new": "E"}, "more than once", true},
		{"edit", map[string]any{"path": "plain", "old": "three", "new": ""}, "edited line 3", false},
		{"search", map[string]any{"pattern": `^func \w+`}, "deep/er/file.go:1: func one()\ndeep/er/file.go:2: func two()\n", false},
		{"search", map[string]any{"pattern": `func t`, "path": "deep"}, "deep/er/file.go:2: func two()\n", false},
		{"search", map[string]any{"pattern": `func`, "path": "deep/ignored"}, "deep/ignored/ignored.go:1: func three()\n", false},
		{"search", map[string]any{"pattern": `two`, "path": "deep/er/file.go"}, "deep/er/file.go:2: func two()\n", false},
		{"search", map[string]any{"pattern": `one`, "files": "*.go"}, "deep/er/file.go:1: func one()\n", false},
		{"search", map[string]any{"pattern": `nowhere`}, "[nothing matches]", false},
		{"search", map[string]any{"pattern": `x`, "path": "absent"}, "no such file", true},
		{"shell", map[string]any{"command": "pwd; echo err >&2; exit 3"}, dir + "\nerr\n[exit status 3]", false},
		{"shell", map[string]any{"command": "printf x; cat"}, "x\n[exit status 0]", false},
		{"shell", map[string]any{"command": "kill -TERM $$"}, "[signal: terminated]", false},
		{"shell", map[string]any{"command": "true"}, "[exit status 0]", false},
	} {
		r, sense := w.do(t, s.tool, s.input)
		exact := !s.failed && (s.tool == "shell" || s.tool == "search" || s.tool == "edit")
		if r.failed != s.failed || !sense || exact && r.text != s.want || !strings.Contains(r.text, s.want) {
			t.Errorf("%s %v: %+.200v, sense %t; want %q, failed %t", s.tool, s.input, r, sense, s.want, s.failed)
		}
	}
	// Bytes that are no UTF-8 survive an edit beside them.
	put(t, dir, "latin", "gr\xfcn\nred\n")
	if r, _ := w.do(t, "edit", map[string]any{"path": "latin", "old": "red", "new": "rot"}); r.failed {
		t.Error(r.text)
	}
	if got, err := os.ReadFile(filepath.Join(dir, "latin")); err != nil || string(got) != "gr\xfcn\nrot\n" {
		t.Errorf("the file is %q, %v", got, err)
	}
}

func TestEditCountsTextsThatOverlap(t *testing.T) {
	w, dir := place(t)
	put(t, dir, "a", "xaaax\n")
	if r, _ := w.do(t, "edit", map[string]any{"path": "a", "old": "aa", "new": "b"}); !r.failed {
		t.Errorf("an edit that can be meant in two ways: %+v", r)
	}
}

func TestReplacingKeepsTheMode(t *testing.T) {
	w, dir := place(t)
	path := filepath.Join(dir, "plain")
	if err := os.Chmod(path, 0o755); err != nil {
		t.Fatal(err)
	}
	w.do(t, "write", map[string]any{"path": "plain", "content": "x"})
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o755 || info.Size() != 1 {
		t.Errorf("the mode is %v, %v", info, err)
	}
}

// TestPathsStayInside: whatever a path looks like, what is beside the directory is
// neither read nor written.
func TestPathsStayInside(t *testing.T) {
	w, dir := place(t)
	secret := filepath.Join(filepath.Dir(dir), "secret")
	for name, target := range map[string]string{"link": secret, "up": "..", "relative": "../secret", "absent": "../new"} {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range []string{"../secret", secret, "link", "up/secret", "relative", "absent", "plain/../../secret", "/etc/hostname", "up/new", "../new", "a/../../new"} {
		for tool, input := range map[string]map[string]any{
			"read":   {"path": path},
			"write":  {"path": path, "content": "broken in"},
			"edit":   {"path": path, "old": "hidden", "new": "broken in"},
			"search": {"pattern": ".", "path": path},
		} {
			r, _ := w.do(t, tool, input)
			if tool == "search" && r.text == "[nothing matches]" {
				continue // a link to a file that os.Root does not open
			}
			if !r.failed || strings.Contains(r.text, "hidden") {
				t.Errorf("%s %s: %+v", tool, path, r)
			}
		}
	}
	if r, _ := w.do(t, "search", map[string]any{"pattern": "hidden"}); r.text != "[nothing matches]" {
		t.Errorf("a search follows links: %q", r.text)
	}
	entries, err := os.ReadDir(filepath.Dir(dir))
	if err != nil || len(entries) != 2 {
		t.Errorf("beside the directory there are %v, %v", entries, err)
	}
	if got, err := os.ReadFile(secret); err != nil || string(got) != "hidden\n" {
		t.Errorf("the secret is %q, %v", got, err)
	}
}

func TestWrongInput(t *testing.T) {
	w, _ := place(t)
	for _, c := range []call{
		{name: "launch", input: `{}`},
		{name: "", input: `{}`},
		{name: "shell", input: ``},
		{name: "shell", input: `{}`},
		{name: "shell", input: `null`},
		{name: "shell", input: `"ls"`},
		{name: "shell", input: `{"command":"ls"} x`},
		{name: "shell", input: `{"command":["ls"]}`},
		{name: "shell", input: `{"command":"ls","directory":"/"}`},
		{name: "shell", input: `{"command":"ls","timeout_seconds":-1}`},
		{name: "shell", input: `{"command":"ls","timeout_seconds":1801}`},
		{name: "shell", input: `{"command":"ls","timeout_seconds":1e99}`},
		{name: "read", input: `{"path":""}`},
		{name: "read", input: `{"path":"plain","first_line":0}`},
		{name: "read", input: `{"path":"plain","lines":-3}`},
		{name: "read", input: `{"path":"a\u0000b"}`},
		{name: "write", input: `{"path":"a"}`},
		{name: "write", input: `{"path":"a","content":null}`},
		{name: "edit", input: `{"path":"plain","old":"","new":"x"}`},
		{name: "edit", input: `{"path":"plain","old":"one"}`},
		{name: "search", input: `{"pattern":"("}`},
		{name: "search", input: `{"pattern":""}`},
		{name: "search", input: `{"pattern":"x","files":"["}`},
		{name: "search", input: `{"pattern":"` + strings.Repeat("x", maxPattern+1) + `"}`},
	} {
		if r, sense := perform(t.Context(), w.tools(), c); sense || !r.failed {
			t.Errorf("%s %.60s: %+v", c.name, c.input, r)
		}
	}
}

// TestSchemasSayWhatIsTaken: the schema that the model sees has the fields that decode
// takes, and no other.
func TestSchemasSayWhatIsTaken(t *testing.T) {
	w, _ := place(t)
	samples := map[string]any{"string": "plain", "integer": 1}
	for _, tool := range w.tools() {
		var schema struct {
			Type       string
			Properties map[string]struct{ Type string }
			Required   []string
			Additional *bool `json:"additionalProperties"`
		}
		if err := json.Unmarshal([]byte(tool.schema), &schema); err != nil {
			t.Fatalf("%s: %v", tool.name, err)
		}
		if schema.Type != "object" || schema.Additional == nil || *schema.Additional || len(schema.Required) == 0 {
			t.Errorf("%s: the schema is %s", tool.name, tool.schema)
		}
		all := map[string]any{}
		for name, property := range schema.Properties {
			all[name] = samples[property.Type]
		}
		if r, sense := w.do(t, tool.name, all); !sense {
			t.Errorf("%s does not take %v: %s", tool.name, all, r.text)
		}
		for _, name := range schema.Required {
			value := all[name]
			delete(all, name)
			if _, sense := w.do(t, tool.name, all); sense {
				t.Errorf("%s does not need %s", tool.name, name)
			}
			all[name] = value
		}
	}
}

func TestLongResultsAreCut(t *testing.T) {
	w, dir := place(t)
	var text strings.Builder
	for i := range 20_000 {
		fmt.Fprintf(&text, "line %d 木\n", i+1)
	}
	put(t, dir, "long", text.String())
	r, _ := w.do(t, "shell", map[string]any{"command": "cat long; exit 7"})
	for _, want := range []string{"line 1 木\n", "bytes left out]", "line 20000 木\n[exit status 7]"} {
		if !strings.Contains(r.text, want) {
			t.Errorf("the shell's result does not have %q", want)
		}
	}
	r, _ = w.do(t, "search", map[string]any{"pattern": "line"})
	if !strings.HasPrefix(r.text, "long:1: line 1 木\n") || !strings.Contains(r.text, "cut short") {
		t.Errorf("the search's result is %.40q…", r.text)
	}
	// A page is full of whole lines, the next after the last.
	put(t, dir, "wide", strings.Repeat(strings.Repeat("x", 200)+"\n", 200))
	r, _ = w.do(t, "search", map[string]any{"pattern": "x", "path": "wide"})
	found := strings.Split(r.text, "\n")
	for i, line := range found[:len(found)-1] {
		if !strings.HasPrefix(line, fmt.Sprintf("wide:%d: x", i+1)) {
			t.Errorf("line %d is %.40q", i+1, line)
			break
		}
	}
	if len(r.text) < page-300 {
		t.Errorf("the page has %d bytes", len(r.text))
	}
	// The pages of a file, one after the other, are the file.
	var pages strings.Builder
	for first := 1; ; {
		r, _ := w.do(t, "read", map[string]any{"path": "long", "first_line": first, "lines": 100_000})
		page, more, found := strings.Cut(r.text, "[more follows: first_line ")
		for line := range strings.Lines(page) {
			_, line, _ := strings.Cut(line, "\t")
			pages.WriteString(line)
		}
		if !found {
			break
		}
		next, err := strconv.Atoi(strings.TrimSuffix(more, "]"))
		if err != nil || next <= first {
			t.Fatalf("after line %d follows %q", first, more)
		}
		first = next
	}
	if pages.String() != text.String() {
		t.Error("the pages are not the file")
	}
	put(t, dir, "huge", strings.Repeat("x", maxFile+1))
	if r, _ := w.do(t, "read", map[string]any{"path": "huge"}); !r.failed {
		t.Error("a huge file is read")
	}
}

// TestTimeout: what a command started ends with it, and is not waited for.
func TestTimeout(t *testing.T) {
	w, dir := place(t)
	if err := syscall.Mkfifo(filepath.Join(dir, "wait"), 0o644); err != nil {
		t.Fatal(err)
	}
	r, sense := w.do(t, "shell", map[string]any{"command": "echo begun; cat wait & cat wait", "timeout_seconds": 1})
	if !r.failed || !sense || !strings.HasSuffix(r.text, "[killed after 1 seconds]") {
		t.Errorf("the result is %+v", r)
	}
	// Nobody reads the pipe any more: a writer that does not wait finds none.
	if f, err := os.OpenFile(filepath.Join(dir, "wait"), os.O_WRONLY|syscall.O_NONBLOCK, 0); !errors.Is(err, syscall.ENXIO) {
		t.Errorf("somebody still reads the pipe: %v", err)
		_ = f.Close()
	}
}

func TestBackground(t *testing.T) {
	w, _ := place(t)
	r, _ := w.do(t, "shell", map[string]any{"command": "mkfifo wait; cat wait & echo $!"})
	text, _, _ := strings.Cut(r.text, "\n")
	pid, err := strconv.Atoi(text)
	if err != nil || !strings.Contains(r.text, "still runs") {
		t.Fatalf("the result is %+v", r)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Errorf("it does not run: %v", err)
	}
}

func TestShellEndsWithTheContext(t *testing.T) {
	w, _ := place(t)
	why := errors.New("told to end")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	if _, err := w.shell(ctx, `{"command":"sleep 1000"}`); !errors.Is(err, why) {
		t.Errorf("it ended with %v", err)
	}
}
