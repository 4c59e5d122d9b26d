//go:build linux

package image

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"

	"tendril/erofs"
)

// write writes the tree as an EROFS image to an empty file, and returns its entries
// and size. The same tree gives the same bytes.
func (f *flattener) write(ctx context.Context, file *os.File) (entries int, size int64, err error) {
	if err := f.spool.file.settle(); err != nil {
		return 0, 0, fmt.Errorf("%w: %w", errSpool, err)
	}
	out := &sparse{File: file}
	w := writing{ctx: ctx, spool: f.spool, out: erofs.New(out, erofs.Options{Time: f.made}), names: map[*node]string{}}
	if err := w.dir("", f.root); err != nil {
		return 0, 0, err
	}
	if err := w.out.Close(); err != nil {
		return 0, 0, err
	}
	return w.entries, out.end, out.settle()
}

type writing struct {
	ctx     context.Context
	spool   *spool
	out     *erofs.Writer
	names   map[*node]string // the first name of each file and link
	entries int
}

func (w *writing) dir(path string, n *node) error {
	if err := w.out.Dir(path, attr(n)); err != nil {
		return err
	}
	w.entries++
	if path != "" {
		path += "/"
	}
	for _, name := range slices.Sorted(maps.Keys(n.children)) {
		if err := w.ctx.Err(); err != nil {
			return err
		}
		if err := w.entry(path+name, n.children[name].node); err != nil {
			return err
		}
	}
	return nil
}

func (w *writing) entry(path string, n *node) error {
	if n.isDir() {
		return w.dir(path, n)
	}
	w.entries++
	if first, ok := w.names[n]; ok {
		return w.out.Link(path, first)
	}
	w.names[n] = path
	if n.isLink() {
		return w.out.Symlink(path, n.target, attr(n))
	}
	size, err := w.out.File(path, attr(n), w.spool.open(n.content))
	if err == nil && size != n.content.size {
		err = fmt.Errorf("%w: of %q came %d bytes of %d: %w", errSpool, path, size, n.content.size, io.ErrUnexpectedEOF)
	}
	return err
}

func attr(n *node) erofs.Attr {
	return erofs.Attr{Perm: n.mode, Time: n.time, Owner: &n.owner}
}
