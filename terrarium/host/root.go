//go:build linux

package host

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"tendril/rootfs"
	"tendril/stoma"
	"tendril/terrarium"
)

// Where things are for a Sprout, as they are behind every wall.
const (
	workspace = "/workspace"
	home      = "/home/sprout"
)

// make makes the run's own directories, and says what its root consists of.
func (p place) make(spec terrarium.Spec, guest string) (stoma.HostRoot, error) {
	root := stoma.HostRoot{
		Dir:  filepath.Join(p.dir, "root"),
		Laid: []stoma.Laid{{Source: guest, Target: terrarium.StomaInside}},
	}
	if err := errorOf(os.Mkdir(p.dir, 0o700), os.Mkdir(root.Dir, 0o700)); err != nil {
		return root, fmt.Errorf("making the run's own directories: %w", err)
	}
	for target, mode := range map[string]os.FileMode{workspace: 0o755, home: 0o755, "/tmp": 0o777 | os.ModeSticky} {
		dir := filepath.Join(p.dir, filepath.Base(target))
		if err := errorOf(os.Mkdir(dir, 0o700), os.Chmod(dir, mode)); err != nil {
			return root, fmt.Errorf("making the run's own directories: %w", err)
		}
		root.Laid = append(root.Laid, stoma.Laid{Source: dir, Target: target, Writable: true})
	}
	for _, program := range spec.Rootfs.Programs {
		root.Laid = append(root.Laid, stoma.Laid{Source: program.Source, Target: program.Target})
	}
	if spec.Rootfs.Authority == nil {
		return root, nil
	}
	root.Bare = rootfs.TrustDirs()
	files := rootfs.View{}.Trusting(spec.Rootfs.Authority).Files
	for i, target := range slices.Sorted(maps.Keys(files)) {
		source := filepath.Join(p.dir, fmt.Sprint("trust-", i))
		if err := os.WriteFile(source, files[target], 0o444); err != nil {
			return root, fmt.Errorf("writing the certificates that are trusted: %w", err)
		}
		root.Laid = append(root.Laid, stoma.Laid{Source: source, Target: target})
	}
	return root, nil
}

// errorOf is the first error.
func errorOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
