package substrate_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"tendril/fault"
	"tendril/substrate"
)

func TestMain(m *testing.M) {
	// A second process, for what processes do to each other.
	if args := os.Getenv("SUBSTRATE_TEST_BASE"); args != "" {
		dir, path, _ := strings.Cut(args, "|")
		if err := childBase(dir, path); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func childBase(dir, path string) error {
	ctx := context.Background()
	s, err := substrate.OpenStore(dir)
	if err != nil {
		return err
	}
	r, err := s.Open(ctx, path)
	if err != nil {
		return err
	}
	c, err := r.Resolve(ctx, "")
	if err != nil {
		return err
	}
	b, err := r.Base(ctx, c, owner, nil)
	if err != nil {
		return err
	}
	fmt.Println(b.Cached)
	if os.Getenv("SUBSTRATE_TEST_DIE") != "" {
		return syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
	return errors.Join(b.Release(), r.Close())
}

func child(dir, path string, env ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), append(env, "SUBSTRATE_TEST_BASE="+dir+"|"+path)...)
	cmd.Stderr = os.Stderr
	return cmd
}

// TestProcessesMakeOneImage lets several processes ask for the same base.
func TestProcessesMakeOneImage(t *testing.T) {
	dir := newRepo(t, map[string]string{"a": "1\n"})
	store := t.TempDir()
	var wg sync.WaitGroup
	outputs := make([]string, 4)
	for i := range outputs {
		wg.Go(func() {
			out, err := child(store, dir).Output()
			if err != nil {
				t.Error(err)
			}
			outputs[i] = string(out)
		})
	}
	wg.Wait()
	if made := strings.Count(strings.Join(outputs, ""), "false"); made != 1 {
		t.Errorf("the image was made %d times", made)
	}
	if left, _ := filepath.Glob(filepath.Join(store, "scratch/*")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// TestSweep kills a process and sees what the next one finds.
func TestSweep(t *testing.T) {
	dir := newRepo(t, map[string]string{"a": "1\n"})
	store := t.TempDir()
	_ = child(store, dir, "SUBSTRATE_TEST_DIE=1").Run()
	if left, _ := filepath.Glob(filepath.Join(store, "scratch/*")); len(left) == 0 {
		t.Fatal("the killed process has left nothing: the test shows nothing")
	}
	s, err := substrate.OpenStore(store)
	if err != nil {
		t.Fatal(err)
	}
	if left, _ := filepath.Glob(filepath.Join(store, "scratch/*")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	r := open(t, s, dir)
	if _, err := substrate.OpenStore(store); err != nil { // must not sweep what is in use
		t.Fatal(err)
	}
	b, err := r.Base(context.Background(), resolve(t, r, ""), owner, nil)
	if err != nil || !b.Cached {
		t.Fatalf("after a sweep: %v", err)
	}
	if err := b.Release(); err != nil {
		t.Error(err)
	}
}

func TestEviction(t *testing.T) {
	dir := newRepo(t, map[string]string{"a": "1\n"})
	s := newStore(t)
	s.MaxBaseBytes = 1
	r := open(t, s, dir)
	ctx := context.Background()
	var held []*substrate.Base
	for i := range 3 {
		git(t, dir, "commit", "-q", "--allow-empty", "-m", fmt.Sprint(i))
		b, err := r.Base(ctx, resolve(t, r, ""), owner, nil)
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, b)
	}
	for _, b := range held {
		if _, err := os.Stat(b.Image); err != nil {
			t.Errorf("an image in use is gone: %v", err)
		}
	}
	if err := held[0].Release(); err != nil {
		t.Fatal(err)
	}
	git(t, dir, "commit", "-q", "--allow-empty", "-m", "last")
	last, err := r.Base(ctx, resolve(t, r, ""), owner, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(held[0].Image); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("an image that nobody uses stays: %v", err)
	}
	for _, b := range append(held[1:], last) {
		if _, err := os.Stat(b.Image); err != nil {
			t.Error(err)
		}
		if err := b.Release(); err != nil {
			t.Error(err)
		}
	}
}

func TestKeysDiffer(t *testing.T) {
	dir := newRepo(t, map[string]string{"a": "1\n"})
	git(t, dir, "branch", "other")
	r := open(t, newStore(t), dir)
	images := map[string]bool{}
	for _, rev := range []string{"main", "other", git(t, dir, "rev-parse", "main")} {
		for _, o := range []substrate.Owner{owner, {UID: 1, GID: 2}} {
			b, err := r.Base(context.Background(), resolve(t, r, rev), o, nil)
			if err != nil {
				t.Fatal(err)
			}
			images[b.Image] = true
			if err := b.Release(); err != nil {
				t.Error(err)
			}
		}
	}
	if len(images) != 6 {
		t.Errorf("%d images for 6 different contents", len(images))
	}
}

// TestFullDisk runs on a file system of 1 MB.
func TestFullDisk(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounting a small file system needs root")
	}
	small := t.TempDir()
	if err := syscall.Mount("tendril-test", small, "tmpfs", 0, "size=1m,mode=700"); err != nil {
		t.Skipf("a small file system cannot be mounted here: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(small, 0); err != nil {
			t.Error(err)
		}
	})
	dir := newRepo(t, map[string]string{"big": strings.Repeat("0123456789abcdef", 1<<17)})
	s, err := substrate.OpenStore(small)
	if err != nil {
		t.Fatal(err)
	}
	r, err := s.Open(context.Background(), dir)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	_, err = r.Base(context.Background(), resolve(t, r, ""), owner, nil)
	wantFault(t, err, fault.Unavailable, "no space", small)
	if hintOf(err) == "" {
		t.Error("no remedy")
	}
	if left, _ := filepath.Glob(filepath.Join(small, "base/*")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

func TestStoreMustBeOurs(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	_, err := substrate.OpenStore(dir)
	wantFault(t, err, fault.Unavailable, dir)
	file := filepath.Join(t.TempDir(), "f")
	write(t, file, "")
	_, err = substrate.OpenStore(file)
	wantFault(t, err, fault.Unavailable, file)
}

// TestDamagedImage cuts a cached image short, as a full disk or a crash may.
func TestDamagedImage(t *testing.T) {
	dir := newRepo(t, map[string]string{"a": strings.Repeat("1\n", 10_000)})
	r := open(t, newStore(t), dir)
	c := resolve(t, r, "")
	for name, damage := range map[string]func(path string, size int64) error{
		"empty": func(p string, _ int64) error { return os.Truncate(p, 0) },
		"short": func(p string, size int64) error { return os.Truncate(p, size-4096) },
		"long":  func(p string, size int64) error { return os.Truncate(p, size+1) },
		"no superblock": func(p string, size int64) error {
			return errors.Join(os.Truncate(p, 0), os.Truncate(p, size))
		},
	} {
		b, err := r.Base(context.Background(), c, owner, nil)
		if err != nil {
			t.Fatal(err)
		}
		whole, err := os.ReadFile(b.Image)
		if err := errors.Join(err, damage(b.Image, int64(len(whole))), b.Release()); err != nil {
			t.Fatal(err)
		}
		again, err := r.Base(context.Background(), c, owner, nil)
		if err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(again.Image)
		if err != nil || again.Cached || len(data) != len(whole) {
			t.Errorf("%s: cached %v, %d bytes of %d: %v", name, again.Cached, len(data), len(whole), err)
		}
		if err := again.Release(); err != nil {
			t.Error(err)
		}
	}
	if b, err := r.Base(context.Background(), c, owner, nil); err != nil || !b.Cached {
		t.Errorf("a whole image is not taken from the cache: %v", err)
	} else if err := b.Release(); err != nil {
		t.Error(err)
	}
}
