// Package acceptance drives the built binary as a user would: scripts in testdata
// are the specification of the command line. As root, the scripts also run a second
// time as an ordinary user.
package acceptance_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"tendril/terrarium/terrariumtest"
)

// ordinaryUID is an account that no host has.
const ordinaryUID = 54321

// binary is the built tendril, for scripts by way of PATH.
func binary(t testing.TB) string {
	t.Helper()
	path := os.Getenv("TENDRIL_TEST_BINARY")
	if path == "" {
		t.Skip("TENDRIL_TEST_BINARY is not set: run `make test`")
	}
	return path
}

func TestScripts(t *testing.T) {
	dir, work := filepath.Dir(binary(t)), workDir(t)
	testscript.Run(t, testscript.Params{
		Dir:         "testdata",
		WorkdirRoot: work,
		Setup: func(env *testscript.Env) error {
			home := filepath.Join(env.WorkDir, "home")
			if err := os.Mkdir(home, 0o700); err != nil {
				return err
			}
			env.Setenv("HOME", home)
			env.Setenv("PATH", dir+":"+os.Getenv("PATH"))
			env.Setenv("GIT_CONFIG_NOSYSTEM", "1")
			env.Setenv("R", filepath.Join(env.WorkDir, "repo"))
			// A canary that must not be found inside.
			env.Setenv("TENDRIL_CANARY", "canary-of-the-caller")
			return os.WriteFile(filepath.Join(home, ".gitconfig"), []byte("[user]\n\tname = gardener\n\temail = gardener@localhost\n[init]\n\tdefaultBranch = main\n"), 0o600)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"fingerprint": fingerprint,
			"runid":       runID,
		},
		Condition: func(name string) (bool, error) {
			switch name {
			case "root":
				return os.Getuid() == 0, nil
			case "toolchain":
				return !strings.HasPrefix(work, "/tmp/"), nil
			}
			return false, fmt.Errorf("unknown condition %s", name)
		},
	})
}

// workDir is where scripts work: not in /tmp where that is possible, because /tmp is
// made new in every Terrarium and no toolchain can be shown from there.
func workDir(t testing.TB) string {
	t.Helper()
	parent := os.Getenv("TENDRIL_TEST_WORK")
	if parent == "" && os.Getuid() == 0 {
		parent = "/opt"
	}
	dir, err := os.MkdirTemp(parent, "tendril-acceptance-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// TestScriptsAsOrdinaryUser runs the scripts again without root.
func TestScriptsAsOrdinaryUser(t *testing.T) {
	asOrdinaryUser(t, "TestScripts")
}

// asOrdinaryUser is [againAsOrdinaryUser] for what needs nothing else, which all tests may have
// been run with before.
func asOrdinaryUser(t *testing.T, name string, env ...string) {
	t.Helper()
	terrariumtest.SkipTested(t, terrariumtest.OrdinaryUser)
	againAsOrdinaryUser(t, name, env...)
}

// againAsOrdinaryUser runs one of this package's tests again in a process of an
// ordinary user, with more of the environment if need be. It skips when this process
// is one already.
func againAsOrdinaryUser(t *testing.T, name string, env ...string) {
	t.Helper()
	path := binary(t)
	if os.Getuid() != 0 {
		t.Skip("this is an ordinary user already")
	}
	dir, err := os.MkdirTemp("/opt", "tendril-ordinary-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	// The clone may lie where the ordinary user cannot look.
	for from, to := range map[string]string{path: "bin/tendril", os.Args[0]: "acceptance.test"} {
		copyFile(t, from, filepath.Join(dir, to))
	}
	if err := os.CopyFS(filepath.Join(dir, "testdata"), os.DirFS("testdata")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "tmp"), 0o700); err != nil {
		t.Fatal(err)
	}
	err = filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		return errors.Join(err, os.Lchown(path, ordinaryUID, ordinaryUID))
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(filepath.Join(dir, "acceptance.test"), "-test.run=^"+name+"$", "-test.v")
	cmd.Dir = dir
	cmd.Env = append([]string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "TMPDIR=" + filepath.Join(dir, "tmp"),
		"TENDRIL_TEST_BINARY=" + filepath.Join(dir, "bin/tendril"), "TENDRIL_TEST_WORK=" + filepath.Join(dir, "tmp"),
	}, env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: ordinaryUID, Gid: ordinaryUID}}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("as an ordinary user: %v\n%s", err, out)
	}
	if testing.Verbose() {
		t.Logf("as an ordinary user:\n%s", out)
	}
	if !strings.Contains(string(out), "--- PASS: "+name) {
		t.Fatalf("as an ordinary user nothing passed:\n%s", out)
	}
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		t.Fatal(err)
	}
	in, err := os.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(out, in); err != nil {
		t.Fatal(err)
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
}

// fingerprint writes what every entry of a repository is, byte for byte, but for
// object files and the branches of runs: fingerprint DIR FILE.
func fingerprint(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: fingerprint DIR FILE")
	}
	text, err := fingerprintOf(ts.MkAbs(args[0]))
	ts.Check(err)
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), []byte(text), 0o600))
}

func fingerprintOf(root string) (string, error) {
	var out strings.Builder
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, _ := filepath.Rel(root, path)
		if strings.Contains(name, "refs/heads/tendril") || strings.Contains(name, "objects/pack") {
			return nil
		}
		info, err := os.Lstat(path)
		if err != nil {
			return err
		}
		switch {
		case info.Mode().IsRegular():
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			fmt.Fprintf(&out, "%s %v %x %d\n", name, info.Mode(), sha256.Sum256(data), info.ModTime().UnixNano())
		case info.Mode()&fs.ModeSymlink != 0:
			target, err := os.Readlink(path)
			if err != nil {
				return err
			}
			fmt.Fprintf(&out, "%s -> %s\n", name, target)
		default:
			fmt.Fprintf(&out, "%s %v\n", name, info.Mode())
		}
		return nil
	})
	return out.String(), err
}

// runID sets an environment variable to the id in the last command's stdout or
// stderr: runid VAR.
func runID(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: runid VAR")
	}
	for _, stream := range []string{"stdout", "stderr"} {
		text := ts.ReadFile(stream)
		if i := strings.Index(text, "r-0"); i >= 0 && len(text) >= i+28 {
			ts.Setenv(args[0], text[i:i+28])
			return
		}
	}
	ts.Fatalf("the last command named no run")
}
