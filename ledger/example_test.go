package ledger_test

import (
	"bytes"
	"encoding/hex"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"tendril/ledger"
)

var update = flag.Bool("update", false, "write the example in testdata anew, with another key")

// The example that docs/ledger.md works through: an export of seven rows, a checkpoint
// that was kept when there were five, and the key.
const (
	exampleExport     = "testdata/example.jsonl"
	exampleCheckpoint = "testdata/example.checkpoint"
	exampleKey        = "testdata/example.key"
)

func writeExample(t *testing.T) {
	key, _, err := ledger.NewKey("tendril/5f0c3a9e71d24b86a0e4c7d2b913f658")
	if err != nil {
		t.Fatal(err)
	}
	run := "r-01kb7q8m2v0000000000000000"
	of := int64(2)
	var lines exported
	for i, e := range []ledger.Entry{
		{Kind: ledger.Open, Opening: key.Opening()},
		{Kind: ledger.Decision, Proof: ledger.ByNothing, UID: new(1001), Capability: "sprout.grow", Subject: "handbook",
			Decision: ledger.Deny, Fault: "denied", Rule: "the token was revoked", Digests: map[string]string{"input": digest}},
		{Kind: ledger.Decision, Actor: "ci-docs", Proof: ledger.ByToken, UID: new(1001), Capability: "sprout.grow", Subject: "handbook",
			Decision: ledger.Permit, Rule: "grants.yaml line 3", Digests: map[string]string{"input": digest, "grant": digest}},
		{Kind: ledger.Change, Actor: "ci-docs", Proof: ledger.ByToken, UID: new(1001), Run: run, Of: &of, Change: "run.created", State: "queued"},
		{Kind: ledger.Decision, Actor: "botanist", Proof: ledger.ByProcess, UID: new(1000), Capability: "fruit.diff",
			Subject: "/home/ann/B\xfccher", Decision: ledger.Permit},
		{Kind: ledger.Change, Run: run, Of: &of, Change: "run.ended", State: "fruited",
			Digests: map[string]string{"fruit": "gitCommit:da39a3ee5e6b4b0d3255bfef95601890afd80709"}},
		{Kind: ledger.Outcome, Actor: "ci-docs", Proof: ledger.ByToken, UID: new(1001), Capability: "sprout.grow", Subject: "handbook",
			Run: run, Of: &of, State: "done"},
	} {
		row, err := ledger.NewRow(int64(i), time.Date(2026, 11, 29, 8, i/2, 7*i, i*137e6, time.UTC), e)
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, row.Line())
	}
	for path, content := range map[string][]byte{
		exampleExport: lines.bytes(), exampleCheckpoint: lines.keep(t, key, 5), exampleKey: []byte(key.Verifier() + "\n"),
	} {
		if err := os.WriteFile(path, content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestTheExampleHolds also keeps the numbers that docs/ledger.md gives for it true.
func TestTheExampleHolds(t *testing.T) {
	if *update {
		writeExample(t)
	}
	export, kept := read(t, exampleExport), read(t, exampleCheckpoint)
	report, err := verify(export, strings.TrimSpace(string(read(t, exampleKey))), kept)
	if err != nil || report.Rows != 7 || report.Covered != 5 {
		t.Fatalf("got %+v, %v", report, err)
	}
	document := string(read(t, "../docs/ledger.md"))
	first, _, _ := bytes.Cut(export, []byte("\n"))
	leaf := tlog.RecordHash(first)
	for what, want := range map[string]string{
		"leaf of row 0":  hex.EncodeToString(leaf[:]),
		"the checkpoint": strings.ReplaceAll(strings.SplitN(string(kept), "\n\n", 2)[0], "\n", "\n    "),
		"the key":        strings.TrimSpace(string(read(t, exampleKey))),
	} {
		if !strings.Contains(document, want) {
			t.Errorf("%s is not in docs/ledger.md: %s", what, want)
		}
	}
}

// TestTheRecipeInTheDocumentWorks runs the program of docs/ledger.md, which shares no code
// with this one, on the example, and on the example with something changed.
func TestTheRecipeInTheDocumentWorks(t *testing.T) {
	for _, needed := range []string{"python3", "openssl"} {
		if _, err := exec.LookPath(needed); err != nil {
			t.Skipf("%s is not installed", needed)
		}
	}
	dir := t.TempDir()
	program := filepath.Join(dir, "verify.py")
	if err := os.WriteFile(program, recipe(t), 0o600); err != nil {
		t.Fatal(err)
	}
	export, kept, key := read(t, exampleExport), read(t, exampleCheckpoint), strings.TrimSpace(string(read(t, exampleKey)))
	run := func(export, kept []byte, key string) (string, error) {
		for name, content := range map[string][]byte{"export": export, "checkpoint": kept} {
			if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		out, err := exec.Command("python3", program, filepath.Join(dir, "export"), filepath.Join(dir, "checkpoint"), key).CombinedOutput()
		return string(out), err
	}
	out, err := run(export, kept, key)
	if err != nil || !strings.Contains(out, "rows 0 to 4 hold, and 2 newer rows are not covered") {
		t.Errorf("%v\n%s", err, out)
	}
	lines := bytes.SplitAfter(export, []byte("\n"))
	for name, changed := range map[string][2][]byte{
		"a row was changed":        {bytes.Replace(export, []byte("handbook"), []byte("handbag!"), 1), kept},
		"a row was removed":        {bytes.Join(append(lines[:2:2], lines[3:]...), nil), kept},
		"the end is missing":       {bytes.Join(lines[:4], nil), kept},
		"another size was signed":  {export, bytes.Replace(kept, []byte("\n5\n"), []byte("\n4\n"), 1)},
		"another origin is signed": {export, bytes.Replace(kept, []byte("tendril/5"), []byte("tendril/6"), 1)},
	} {
		if out, err := run(changed[0], changed[1], key); err == nil {
			t.Errorf("%s, and it says %s", name, out)
		}
	}
	if out, err := run(export, kept, newKey(t).Verifier()); err == nil {
		t.Errorf("another key was given, and it says %s", out)
	}
}

// recipe is the indented program in docs/ledger.md.
func recipe(t *testing.T) []byte {
	t.Helper()
	var program bytes.Buffer
	for line := range strings.Lines(string(read(t, "../docs/ledger.md"))) {
		code, indented := strings.CutPrefix(line, "    ")
		begins := strings.HasPrefix(code, "import base64")
		switch {
		case indented && (begins || program.Len() > 0):
			program.WriteString(code)
		case line == "\n" && program.Len() > 0:
			program.WriteString("\n")
		case program.Len() > 0:
			return program.Bytes()
		}
	}
	t.Fatal("docs/ledger.md has no program that something follows")
	return nil
}
