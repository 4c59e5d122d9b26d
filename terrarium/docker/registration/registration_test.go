//go:build linux

package registration

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"tendril/fault"
)

// rootsPlace is a directory that only root can write, with all that leads there.
func rootsPlace(t *testing.T) string {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root has a place of root's: run it as root")
	}
	dir, err := os.MkdirTemp("/opt", "tendril-setup-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func registrationIn(t *testing.T, dir string) Registration {
	t.Helper()
	program := filepath.Join(dir, "bin", "tendril")
	if err := errors.Join(os.Mkdir(filepath.Dir(program), 0o755), os.WriteFile(program, []byte("#!/bin/sh\n"), 0o755)); err != nil {
		t.Fatal(err)
	}
	return Registration{File: filepath.Join(dir, "docker", "daemon.json"), Program: program, Link: filepath.Join(dir, "lib", "tendril", "runsc")}
}

func TestSetUpAndUndo(t *testing.T) {
	for _, before := range []string{"", "{\n  \"runtimes\": {},\n  \"icc\": false\n}\n"} {
		dir := rootsPlace(t)
		r := registrationIn(t, dir)
		if before != "" {
			if err := errors.Join(os.Mkdir(filepath.Dir(r.File), 0o755), os.WriteFile(r.File, []byte(before), 0o640), os.Chown(r.File, 0, 12)); err != nil {
				t.Fatal(err)
			}
		}
		change, err := r.SetUp()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := os.Lstat(r.Link); !errors.Is(err, fs.ErrNotExist) || len(change.Steps) < 2 || len(change.Then) == 0 {
			t.Errorf("saying what to do did something (%v), or said %q", err, change.Steps)
		}
		if err := change.Apply(); err != nil {
			t.Fatal(err)
		}
		if target, err := os.Readlink(r.Link); err != nil || target != r.Program {
			t.Errorf("the link leads to %q (%v)", target, err)
		}
		text, err := os.ReadFile(r.File)
		if err != nil || !strings.Contains(string(text), r.Link) || strings.Contains(before, "icc") != strings.Contains(string(text), "icc") {
			t.Errorf("the configuration is %s (%v)", text, err)
		}
		if info, err := os.Stat(r.File); before != "" && (err != nil || info.Mode().Perm() != 0o640 || groupOf(info) != 12) {
			t.Errorf("mode and owner of the configuration have changed: %v (%v)", info, err)
		}
		if again, err := r.SetUp(); err != nil || len(again.Steps) != 0 {
			t.Errorf("a second time there is %q to do (%v)", again.Steps, err)
		}
		undo, err := r.Undo()
		if err != nil {
			t.Fatal(err)
		}
		if err := undo.Apply(); err != nil {
			t.Fatal(err)
		}
		text, err = os.ReadFile(r.File)
		if string(text) != before || (before == "") != errors.Is(err, fs.ErrNotExist) {
			t.Errorf("undone it is %q (%v), and was %q", text, err, before)
		}
		for _, gone := range []string{r.Link, backup(r.File)} {
			if _, err := os.Lstat(gone); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s is left (%v)", gone, err)
			}
		}
		if again, err := r.Undo(); err != nil || len(again.Steps) != 0 {
			t.Errorf("undoing it again there is %q to do (%v)", again.Steps, err)
		}
	}
}

// What others can change is not what a daemon of root's runs.
func TestSetUpRefusesWhatOthersCanChange(t *testing.T) {
	const other = 54321
	for name, spoil := range map[string]func(r *Registration) error{
		"belongs to uid 54321":   func(r *Registration) error { return os.Chown(r.Program, other, other) },
		"bin can be written":     func(r *Registration) error { return os.Chmod(filepath.Dir(r.Program), 0o777|fs.ModeSticky) },
		"tendril can be written": func(r *Registration) error { return os.Chmod(r.Program, 0o775) },
		"aside can be written": func(r *Registration) error {
			dir := filepath.Join(filepath.Dir(r.Program), "aside")
			err := errors.Join(os.Mkdir(dir, 0o755), os.Rename(r.Program, filepath.Join(dir, "tendril")))
			return errors.Join(err, os.Symlink("aside/tendril", r.Program), os.Chmod(dir, 0o757))
		},
		"too many symbolic links": func(r *Registration) error {
			return errors.Join(os.Remove(r.Program), os.Symlink("tendril", r.Program))
		},
		"lib can be written": func(r *Registration) error {
			lib := filepath.Dir(filepath.Dir(r.Link))
			return errors.Join(os.Mkdir(lib, 0o755), os.Chmod(lib, 0o777))
		},
		"no link of tendril's": func(r *Registration) error {
			return errors.Join(os.MkdirAll(filepath.Dir(r.Link), 0o755), os.WriteFile(r.Link, nil, 0o755))
		},
		"looking at":           func(r *Registration) error { return os.Remove(r.Program) },
		"not an absolute path": func(r *Registration) error { r.Program = "tendril"; return nil },
		"called runsc":         func(r *Registration) error { r.Link += "/../gvisor"; r.Link = filepath.Clean(r.Link); return nil },
	} {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			r := registrationIn(t, rootsPlace(t))
			if err := spoil(&r); err != nil {
				t.Fatal(err)
			}
			change, err := r.SetUp()
			if err == nil || !strings.Contains(err.Error(), name) || fault.Is(err, fault.Internal) {
				t.Errorf("it would do %q (%v, %s)", change.Steps, err, fault.KindOf(err))
			}
		})
	}
}

func groupOf(info fs.FileInfo) uint32 { return info.Sys().(*syscall.Stat_t).Gid }
