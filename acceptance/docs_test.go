package acceptance_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"tendril/rootfs/image/imagetest"
	"tendril/run"
)

var idForm = regexp.MustCompile(`r-[0-9a-z]{26}`)

// TestDocumentedCommands runs every `tendril` line of every document as a reader would:
// each document from top to bottom in a site of its own, and all of them in one site, the
// README first. RUN and BRANCH stand for a fresh run and a branch that nobody has checked
// out.
func TestDocumentedCommands(t *testing.T) {
	path := binary(t)
	documents := []string{"../README.md"}
	others, err := filepath.Glob("../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	documents = append(documents, slices.DeleteFunc(others, func(document string) bool {
		return filepath.Base(document) == "commands.md" // the program's own help, compared in CI
	})...)
	ran := 0
	all := newReader(t, path)
	for _, document := range documents {
		lines := commandLines(t, document, "tendril ")
		ran += len(lines)
		t.Run(filepath.Base(document)+" as a whole", func(t *testing.T) {
			r := newReader(t, path)
			for _, line := range lines {
				r.follow(t, line)
			}
		})
		t.Run(filepath.Base(document)+" after those before it", func(t *testing.T) {
			for _, line := range lines {
				all.follow(t, line)
			}
		})
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

// reader is somebody with a repository, who follows the documents.
type reader struct {
	home string
	env  []string
	runs int // for lines that say RUN
}

func newReader(t *testing.T, tendril string) *reader {
	t.Helper()
	home := t.TempDir()
	r := &reader{home: home}
	r.env = append(slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "XDG_") || strings.HasPrefix(v, "TENDRIL_") }),
		"HOME="+home, "PATH="+filepath.Dir(tendril)+":"+os.Getenv("PATH"), "GIT_CONFIG_GLOBAL=/dev/null")
	if daemon := os.Getenv(testDaemon); daemon != "" {
		r.env = append(r.env, "TENDRIL_DOCKER_HOST="+daemon)
	}
	if err := os.Mkdir(filepath.Join(home, "repo"), 0o755); err != nil {
		t.Fatal(err)
	}
	r.run(t, `git init -q -b main .; printf 'test:\n\techo tested\n' >Makefile; git add .
		git -c user.name=a -c user.email=a@localhost commit -qm base; git branch topic`)
	return r
}

// run runs a script in the repository and returns what it prints.
func (r *reader) run(t *testing.T, script string) string {
	t.Helper()
	cmd := exec.Command("sh", "-ec", script)
	cmd.Dir, cmd.Env = filepath.Join(r.home, "repo"), r.env
	out, err := cmd.CombinedOutput()
	if err != nil && !answersNo(script, cmd.ProcessState.ExitCode(), out) {
		t.Fatalf("%s: %v\n%s", script, err, out)
	}
	return string(out)
}

// answersNo says whether a question has its answer, which is an exit status as well.
func answersNo(script string, status int, out []byte) bool {
	return strings.Contains(script, " explain ") && status == run.ExitRefused && bytes.HasPrefix(out, []byte("no: "))
}

func (r *reader) follow(t *testing.T, line string) {
	t.Helper()
	for word, variable := range map[string]string{"--provider docker": testDaemon, "--provider gvisor": testDaemon, "--provider qemu": testKernel, "KERNEL.deb": testKernel} {
		if strings.Contains(line, word) && os.Getenv(variable) == "" {
			t.Run(line, func(t *testing.T) { t.Skipf("%s is not set", variable) })
			return
		}
	}
	if strings.Contains(line, "setup gvisor") && os.Getuid() != 0 {
		t.Run(line, func(t *testing.T) { t.Skip("only what root alone can write may be a daemon's runtime") })
		return
	}
	if strings.Contains(line, "setup gvisor") { // from where an administrator would have put it
		dir, err := os.MkdirTemp("/opt", "tendril-installed-")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.RemoveAll(dir) })
		line = "chmod 755 " + dir + " && cp \"$(command -v tendril)\" " + dir + " && " + dir + "/" + line
	}
	if line = strings.ReplaceAll(line, "KERNEL.deb", os.Getenv(testKernel)); strings.Contains(line, "IMAGE") {
		line = strings.ReplaceAll(line, "IMAGE", "oci:"+imagetest.Debian(t))
	}
	if strings.Contains(line, "RUN") {
		r.runs++ // each changes a file of its own, so that they can all be accepted
		id := idForm.FindString(r.run(t, fmt.Sprintf("tendril grow --json -- sh -c 'echo work >work-%d.txt'", r.runs)))
		line = strings.ReplaceAll(line, "RUN", id)
	}
	r.run(t, strings.ReplaceAll(line, "BRANCH", "topic"))
}
