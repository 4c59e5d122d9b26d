//go:build linux

package guestimage

import (
	"archive/tar"
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"tendril/fault"
)

// tree is the files of a kernel by their paths: modules below "lib/modules/RELEASE", and
// in a package the kernel itself in "boot".
type tree struct {
	files map[string]func(limit int64) ([]byte, error)
	close func() error
}

// add takes a file in, under the path that it has where /lib is in /usr too.
func (t tree) add(name string, read func(limit int64) ([]byte, error)) error {
	name = strings.TrimPrefix(path.Clean("/"+name), "/")
	name = strings.TrimPrefix(name, "usr/")
	if !strings.HasPrefix(name, "boot/") && !strings.HasPrefix(name, "lib/modules/") {
		return nil
	}
	if len(t.files) >= maxEntries {
		return fmt.Errorf("%w: it has more than %d files", errTooLarge, maxEntries)
	}
	t.files[name] = read
	return nil
}

// openDirectory is the tree of a modules directory, whose name is the kernel's release.
func openDirectory(dir string) (tree, error) {
	t := tree{files: map[string]func(int64) ([]byte, error){}, close: func() error { return nil }}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return t, fault.New(fault.Invalid, "opening the modules of the kernel: %w", err)
	}
	t.close = root.Close
	err = fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		return t.add("lib/modules/-/"+name, func(limit int64) ([]byte, error) {
			f, err := root.Open(name)
			if err != nil {
				return nil, err
			}
			defer f.Close()
			return readAll(f, limit)
		})
	})
	if err != nil {
		return t, errors.Join(fault.New(fault.Invalid, "reading the modules directory %s: %w", dir, err), root.Close())
	}
	return t, nil
}

// openPackage is the tree of a Debian package. What it holds is spooled to a file that
// nobody else sees and that is gone with the process.
func openPackage(ctx context.Context, name string, f io.ReaderAt, size int64) (_ tree, err error) {
	t := tree{files: map[string]func(int64) ([]byte, error){}}
	refuse := func(err error) error {
		return fault.New(fault.Invalid, "reading the package %s: %w", name, err).WithHint("name a Debian package of a kernel, such as linux-image-…-cloud-amd64_…_amd64.deb")
	}
	data, err := packedData(f, size)
	if err != nil {
		return t, refuse(err)
	}
	spool, err := os.CreateTemp("", "tendril-kernel-")
	if err != nil {
		return t, fault.New(fault.Unavailable, "unpacking the package %s: %w", name, err)
	}
	t.close = spool.Close
	defer func() {
		if err != nil {
			err = errors.Join(err, spool.Close())
		}
	}()
	if err := os.Remove(spool.Name()); err != nil {
		return t, fault.New(fault.Unavailable, "unpacking the package %s: %w", name, err)
	}
	n, err := io.Copy(spool, &interruptible{ctx, io.LimitReader(data, maxPackage+1)})
	if err == nil && n > maxPackage {
		err = errTooLarge
	}
	if err == nil {
		_, err = spool.Seek(0, io.SeekStart)
	}
	if err != nil {
		return t, refuse(err)
	}
	if err := t.index(spool); err != nil {
		return t, refuse(err)
	}
	return t, nil
}

// index lists the files of a tar archive. The reader reads no further than it is asked
// to, so that the file's position is where the contents begin.
func (t tree) index(spool *os.File) error {
	archive := tar.NewReader(spool)
	for {
		header, err := archive.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if header.Typeflag != tar.TypeReg {
			continue
		}
		at, err := spool.Seek(0, io.SeekCurrent)
		if err != nil {
			return err
		}
		content := io.NewSectionReader(spool, at, header.Size)
		err = t.add(header.Name, func(limit int64) ([]byte, error) {
			return readAll(io.NewSectionReader(content, 0, content.Size()), limit)
		})
		if err != nil {
			return err
		}
	}
}

// interruptible is a reader that fails when its context ends.
type interruptible struct {
	ctx context.Context
	io.Reader
}

func (r *interruptible) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, context.Cause(r.ctx)
	}
	return r.Reader.Read(p)
}

// The format ar(5) of a package: a magic line, then members with headers of 60 bytes.
const (
	arMagic  = "!<arch>\n"
	arHeader = 60
)

// packedData finds the member of a package that holds its files (deb(5)), and unpacks it.
func packedData(f io.ReaderAt, size int64) (io.Reader, error) {
	magic := make([]byte, len(arMagic))
	if _, err := f.ReadAt(magic, 0); err != nil || string(magic) != arMagic {
		return nil, errors.New("it is not a Debian package")
	}
	for at := int64(len(arMagic)); at+arHeader <= size; {
		header := make([]byte, arHeader)
		if _, err := f.ReadAt(header, at); err != nil {
			return nil, err
		}
		length, err := strconv.ParseInt(strings.TrimSpace(string(header[48:58])), 10, 64)
		if err != nil || string(header[58:]) != "`\n" || length < 0 || length > size-at-arHeader {
			return nil, errors.New("a member's header is damaged")
		}
		name := strings.TrimRight(string(header[:16]), " /")
		if name == "data.tar" || strings.HasPrefix(name, "data.tar.") {
			member := bufio.NewReaderSize(io.NewSectionReader(f, at+arHeader, length), 1<<20)
			if filepath.Ext(name) == ".tar" {
				return member, nil
			}
			head, err := member.Peek(8)
			if err != nil {
				return nil, err
			}
			return unpacker(head, member)
		}
		at += arHeader + length + length&1
	}
	return nil, errors.New("it holds no data.tar")
}
