package substrate_test

import (
	"errors"
	"os"
	"syscall"
	"testing"

	"tendril/fault"
)

// TestCheckWritable plants what makes a run's branch impossible: it has to be said
// before the work.
func TestCheckWritable(t *testing.T) {
	packedRefs := func(make func(path string) error) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			path := dir + "/.git/packed-refs"
			if err := errors.Join(os.RemoveAll(path), make(path)); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, c := range map[string]struct {
		plant func(t *testing.T, dir string)
		text  string
	}{
		"a loose branch": {func(t *testing.T, d string) { git(t, d, "branch", "tendril") }, "refs/heads/tendril exists"},
		"a packed branch": {func(t *testing.T, d string) {
			git(t, d, "branch", "tendril")
			git(t, d, "pack-refs", "--all", "--prune")
		}, "refs/heads/tendril exists"},
		"a link": {func(t *testing.T, d string) {
			if err := os.Symlink("/tmp", d+"/.git/refs/heads/tendril"); err != nil {
				t.Fatal(err)
			}
		}, "refs/heads/tendril exists"},
		"packed-refs is a FIFO":      {packedRefs(func(p string) error { return syscall.Mkfifo(p, 0o600) }), "not a regular file"},
		"packed-refs is a link":      {packedRefs(func(p string) error { return os.Symlink("/dev/zero", p) }), "symbolic link"},
		"packed-refs is a directory": {packedRefs(func(p string) error { return os.Mkdir(p, 0o700) }), "packed-refs"},
		"packed-refs is too large": {packedRefs(func(p string) error {
			return errors.Join(os.WriteFile(p, nil, 0o600), os.Truncate(p, 1<<40))
		}), "larger than"},
		"packed-refs is broken": {packedRefs(func(p string) error { return os.WriteFile(p, []byte("nonsense\n"), 0o600) }), "malformed"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := newRepo(t, map[string]string{"a": "1\n"})
			r := open(t, newStore(t), dir)
			if err := r.CheckWritable(); err != nil {
				t.Fatalf("before: %v", err)
			}
			c.plant(t, dir)
			err := r.CheckWritable()
			wantFault(t, err, fault.Invalid, c.text)
			if hintOf(err) == "" {
				t.Error("there is no hint")
			}
		})
	}
}
