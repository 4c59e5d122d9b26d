//go:build linux

package rootfs

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
)

// Build writes the skeleton into dir, which must exist and be empty: directories,
// links, files and an empty mount point for each mount. It mounts nothing. No path
// of the view can lead out of dir. On an error the caller removes dir.
//
// dir becomes 0755, because the Sprout's account walks through it; the caller keeps
// its parent closed to other accounts of the host.
func (v View) Build(dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fmt.Errorf("open the directory for a root file system: %w", err)
	}
	defer root.Close()
	if err := checkEmpty(root); err != nil {
		return fmt.Errorf("build a root file system in %s: %w", dir, err)
	}
	if err := v.build(root); err != nil {
		return fmt.Errorf("build a root file system in %s: %w", dir, err)
	}
	return nil
}

func checkEmpty(root *os.Root) error {
	f, err := root.Open(".")
	if err != nil {
		return err
	}
	defer f.Close()
	switch names, err := f.Readdirnames(1); {
	case len(names) > 0:
		return fmt.Errorf("it is not empty: it holds %q", names[0])
	case err != nil && !errors.Is(err, io.EOF):
		return err
	}
	return nil
}

func (v View) build(root *os.Root) error {
	if err := root.Chmod(".", 0o755); err != nil {
		return err
	}
	for _, d := range v.Dirs {
		if err := root.Mkdir(d.Path[1:], 0o700); err != nil {
			return err
		}
	}
	for _, path := range sortedKeys(v.Links) {
		if err := root.Symlink(v.Links[path], path[1:]); err != nil {
			return err
		}
	}
	for _, path := range sortedKeys(v.Files) {
		if err := writeFile(root, path[1:], v.Files[path]); err != nil {
			return err
		}
	}
	// Modes last and explicitly: the umask of the caller must not decide what the
	// Sprout can read.
	for _, d := range slices.Backward(v.Dirs) {
		if err := root.Chmod(d.Path[1:], d.Mode); err != nil {
			return err
		}
	}
	return nil
}

func writeFile(root *os.Root, name string, data []byte) error {
	f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Chmod(0o644), f.Close())
}

func sortedKeys[V any](m map[string]V) []string {
	return slices.Sorted(maps.Keys(m))
}
