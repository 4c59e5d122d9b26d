package acceptance_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var idForm = regexp.MustCompile(`r-[0-9a-z]{26}`)

// TestDocumentedCommands runs every `tendril` line of every document, in order, in
// a repository like the reader's; RUN, BRANCH and TOKEN stand for a fresh run, a branch
// that nobody has checked out, and the token of a Pollen that may grow.
func TestDocumentedCommands(t *testing.T) {
	path := binary(t)
	documents, err := filepath.Glob("../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	ran := 0
	for _, document := range append(documents, "../README.md") {
		if filepath.Base(document) == "commands.md" {
			continue // the program's own help, compared in CI
		}
		for _, line := range commandLines(t, document, "tendril ") {
			t.Run(filepath.Base(document)+"/"+line, func(t *testing.T) {
				runDocumented(t, path, line)
			})
			ran++
		}
	}
	if ran < 8 {
		t.Errorf("only %d commands were found in the documents", ran)
	}
}

// TestDocumentedTargets holds the documents to the Makefile and to CI: a target that
// a reader is told to make exists, and the README's are made in CI.
func TestDocumentedTargets(t *testing.T) {
	makefile, err := os.ReadFile("../Makefile")
	if os.IsNotExist(err) {
		t.Skip("this is not a checkout")
	}
	if err != nil {
		t.Fatal(err)
	}
	ci, err := os.ReadFile("../.ci/run")
	if err != nil {
		t.Fatal(err)
	}
	ordinary, err := os.ReadFile("../scripts/as-ordinary-user")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range commandLines(t, "../README.md", "make") {
		words := strings.Fields(line)
		if len(words) == 1 {
			continue
		}
		if !regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(words[1]) + `:`).Match(makefile) {
			t.Errorf("README.md tells to run %q, which the Makefile does not know", line)
		}
		if !bytes.Contains(ci, []byte("make "+words[1])) && !bytes.Contains(ordinary, []byte("ordinary "+words[1])) {
			t.Errorf("README.md tells to run %q, which CI does not run", line)
		}
	}
}

// commandLines returns the indented lines that begin with prefix, without their
// comments.
func commandLines(t *testing.T, document, prefix string) []string {
	t.Helper()
	text, err := os.ReadFile(document)
	if os.IsNotExist(err) {
		t.Skip("this is not a checkout")
	}
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for line := range strings.Lines(string(text)) {
		if command, ok := strings.CutPrefix(line, "    "+prefix); ok {
			command, _, _ = strings.Cut(command, " #")
			lines = append(lines, strings.TrimSpace(prefix+command))
		}
	}
	return lines
}

func runDocumented(t *testing.T, tendril, line string) {
	dir := t.TempDir()
	env := append(slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "XDG_") || strings.HasPrefix(v, "TENDRIL_") }),
		"HOME="+dir, "PATH="+filepath.Dir(tendril)+":"+os.Getenv("PATH"), "GIT_CONFIG_GLOBAL=/dev/null")
	run := func(script string) string {
		t.Helper()
		cmd := exec.Command("sh", "-ec", script)
		cmd.Dir, cmd.Env = filepath.Join(dir, "repo"), env
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", script, err, out)
		}
		return string(out)
	}
	if err := os.Mkdir(filepath.Join(dir, "repo"), 0o755); err != nil {
		t.Fatal(err)
	}
	run(`git init -q -b main .; printf 'test:\n\techo tested\n' >Makefile; git add .
		git -c user.name=a -c user.email=a@localhost commit -qm base; git branch topic`)
	if strings.Contains(line, "RUN") {
		id := idForm.FindString(run("tendril grow --json -- sh -c 'echo work >work.txt'"))
		line = strings.ReplaceAll(line, "RUN", id)
	}
	if strings.Contains(line, "TOKEN") {
		run(`tendril substrate add handbook --path . && tendril grant add --pollen ci-docs --substrate handbook --class sprout.grow
			tendril pollen issue ci-docs --token-out ../token`)
		line = strings.ReplaceAll(line, "TOKEN", "../token")
	}
	run(strings.ReplaceAll(line, "BRANCH", "topic"))
}
