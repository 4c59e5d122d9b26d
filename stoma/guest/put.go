//go:build linux

package guest

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"

	"golang.org/x/sys/unix"

	"tendril/stoma"
)

// put unpacks a tar into a directory of the workspace, as the Sprout. Nothing
// outside the workspace can be reached, whatever the tar or a symbolic link in
// the workspace says.
func (sv *server) put(dir string, st *stoma.Stream) error {
	if sv.workspace == nil {
		return errNoWorkspace
	}
	return sv.sprout.do(func() error {
		// os.Root resolves every name beneath its directory and follows no link out.
		root, err := os.OpenRoot(sv.workspace.path())
		if err != nil {
			return fmt.Errorf("open the workspace: %w", err)
		}
		defer root.Close()
		if dir != "" {
			if err := root.MkdirAll(dir, 0o755); err != nil {
				return err
			}
			below, err := root.OpenRoot(dir)
			if err != nil {
				return err
			}
			defer below.Close()
			root = below
		}
		return unpack(root, tar.NewReader(st))
	})
}

func unpack(root *os.Root, t *tar.Reader) error {
	for {
		h, err := t.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if err := unpackEntry(root, h, t); err != nil {
			return err
		}
	}
}

func unpackEntry(root *os.Root, h *tar.Header, content io.Reader) error {
	name := path.Clean(h.Name)
	if name == "." {
		return nil
	}
	if parent := path.Dir(name); parent != "." {
		if err := root.MkdirAll(parent, 0o755); err != nil {
			return err
		}
	}
	mode := fs.FileMode(h.Mode) & 0o777
	switch h.Typeflag {
	case tar.TypeDir:
		if err := root.Mkdir(name, mode|0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		return nil
	case tar.TypeReg:
		return unpackFile(root, name, mode, content)
	case tar.TypeSymlink:
		if err := root.RemoveAll(name); err != nil {
			return err
		}
		return root.Symlink(h.Linkname, name)
	default:
		return fmt.Errorf("%q: a tar may hold files, directories and symbolic links, nothing else", h.Name)
	}
}

func unpackFile(root *os.Root, name string, mode fs.FileMode, content io.Reader) (err error) {
	if err := root.RemoveAll(name); err != nil {
		return err
	}
	f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, mode|0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	_, err = io.Copy(struct{ io.Writer }{f}, content)
	return err
}
