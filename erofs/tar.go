package erofs

import (
	"archive/tar"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// WriteTar writes the tree as a tar in the PAX form, ended by its trailer: the
// root first and as "./", a directory before what is in it, and a further name of
// a file as a hard link to its first. Owners are numbers only.
func WriteTar(w io.Writer, r *Reader) error {
	out := tar.NewWriter(w)
	err := r.Walk(func(e *Entry) error {
		if err := out.WriteHeader(e.header()); err != nil {
			return fmt.Errorf("erofs: %q as a tar: %w", e.Path, err)
		}
		if e.Link != "" {
			return nil
		}
		if _, err := io.Copy(out, e.Content()); err != nil {
			return fmt.Errorf("erofs: %q as a tar: %w", e.Path, err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := out.Close(); err != nil {
		return fmt.Errorf("erofs: end of a tar: %w", err)
	}
	return nil
}

// WriteFileTar writes the tree of an image in a file of the host as [WriteTar] does.
func WriteFileTar(w io.Writer, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("erofs: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("erofs: %w", err)
	}
	tree, err := Open(f, info.Size())
	if err != nil {
		return fmt.Errorf("reading %s: %w", path, err)
	}
	return WriteTar(w, tree)
}

func (e *Entry) header() *tar.Header {
	h := &tar.Header{
		Format: tar.FormatPAX, Name: e.Path, Mode: int64(e.Mode.Perm()),
		Uid: int(e.UID), Gid: int(e.GID), ModTime: e.Time,
	}
	if e.Mode&fs.ModeSticky != 0 {
		h.Mode |= modeSticky
	}
	switch {
	case e.Link != "":
		h.Typeflag, h.Linkname = tar.TypeLink, e.Link
	case e.Mode.IsDir():
		h.Typeflag, h.Name = tar.TypeDir, e.Path+"/"
		if e.Path == "" {
			h.Name = "./"
		}
	case e.Mode&fs.ModeSymlink != 0:
		h.Typeflag, h.Linkname = tar.TypeSymlink, e.Target
	default:
		h.Typeflag, h.Size = tar.TypeReg, e.Size
	}
	return h
}
