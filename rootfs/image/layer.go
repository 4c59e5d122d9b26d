//go:build linux

package image

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"strings"
	"time"

	"tendril/erofs"
	"tendril/fault"
)

// Whiteouts of the OCI image specification (layer.md), and the prefix of what
// AUFS kept for itself, which old tools still write.
const (
	whiteout     = ".wh."
	whiteoutMeta = ".wh..wh."
	opaque       = ".wh..wh..opq"
)

// LeftOut counts what an image has and its unpacked form has not.
type LeftOut struct {
	Devices int `json:"devices"` // devices and FIFOs: entries left out
	Setuid  int `json:"setuid"`  // files and directories without their setuid or setgid bit
	Xattrs  int `json:"xattrs"`  // extended attributes, file capabilities among them
	Env     int `json:"env"`     // variables that are none
}

// flattener lays layers over each other.
type flattener struct {
	*tree
	spool   *spool
	out     LeftOut
	n       int   // the number of the layer that is being applied, from 1
	headers int   // entries that all layers together may still have
	stream  int64 // bytes that all layers together may still have, uncompressed
}

// refuse says which layer is not taken, and why. What is not the layer's own fault is
// left to [Store.explain].
func (f *flattener) refuse(err error) error {
	for _, other := range []error{errMany, errLong, errLarge, errSpool, errSource, context.Canceled, context.DeadlineExceeded} {
		if errors.Is(err, other) {
			return err
		}
	}
	if f.n == placesLayer {
		return fault.New(fault.Invalid, "making the places that every image gets: %w", err)
	}
	return fault.New(fault.Invalid, "layer %d of the image: %w", f.n, err)
}

// layer applies an uncompressed tar as layer number n.
func (f *flattener) layer(ctx context.Context, r io.Reader) error {
	in := tar.NewReader(r)
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return f.refuse(err)
		}
		if f.headers--; f.headers < 0 {
			return errMany
		}
		if h.Typeflag == tar.TypeXGlobalHeader {
			continue // a comment, as git-archive(1) writes one
		}
		if err := f.entry(h, in); err != nil {
			return f.refuse(fmt.Errorf("entry %.300q: %w", h.Name, err))
		}
	}
}

// entry applies one entry of a layer.
func (f *flattener) entry(h *tar.Header, content io.Reader) error {
	path, err := cleanName(h.Name)
	if err != nil {
		return err
	}
	if strings.HasPrefix(path, whiteoutMeta) && path != opaque {
		return nil
	}
	if path == "" {
		return f.rootEntry(h)
	}
	dirPath, name := splitPath(path)
	if strings.HasPrefix(dirPath, whiteout) || strings.Contains(dirPath, "/"+whiteout) {
		return errors.New("a directory on its way has a name that is kept for whiteouts")
	}
	if strings.HasPrefix(name, whiteout) {
		return f.whiteout(dirPath, name)
	}
	w, err := f.enter(dirPath, f.n)
	if err != nil {
		return err
	}
	n, err := f.node(h, w, name, content)
	if err != nil {
		return err
	}
	if n == nil {
		delete(w.dir().children, name) // what it would have replaced
		return nil
	}
	if old, ok := w.dir().children[name]; ok && n.isDir() && old.isDir() {
		old.mode, old.owner, old.time = n.mode, n.owner, n.time
		n = old.node
	}
	return f.put(w, name, n, f.n)
}

func (f *flattener) rootEntry(h *tar.Header) error {
	if h.Typeflag != tar.TypeDir {
		return errors.New("it is the root and no directory")
	}
	n, err := f.attributes(h, fs.ModeDir)
	if err != nil {
		return err
	}
	f.root.mode, f.root.owner, f.root.time = n.mode, n.owner, n.time
	return nil
}

func (f *flattener) whiteout(dir, name string) error {
	hidden := strings.TrimPrefix(name, whiteout)
	switch {
	case name == opaque:
	case strings.HasPrefix(name, whiteoutMeta):
		return nil
	case hidden == "" || hidden == "." || hidden == "..":
		return errors.New("it is a whiteout of nothing")
	}
	w, err := f.enter(dir, 0)
	if errors.Is(err, errAbsent) || errors.Is(err, errNotDir) {
		return nil // there is nothing to hide
	}
	if err != nil {
		return err
	}
	if name == opaque {
		f.prune(w.dir(), f.n)
	} else {
		f.hide(w, hidden, f.n)
	}
	return nil
}

// node makes what an entry says. It is nil for what is left out.
func (f *flattener) node(h *tar.Header, w way, name string, content io.Reader) (*node, error) {
	switch h.Typeflag {
	case tar.TypeReg, tar.TypeGNUSparse:
		n, err := f.attributes(h, 0)
		if err != nil {
			return nil, err
		}
		n.content, err = f.spool.add(content)
		return n, err
	case tar.TypeDir:
		n, err := f.attributes(h, fs.ModeDir)
		if err == nil {
			n.children, n.below, n.pruned = map[string]child{}, f.n, f.n
		}
		return n, err
	case tar.TypeSymlink:
		if h.Linkname == "" || len(h.Linkname) > erofs.MaxSymlinkLen || strings.IndexByte(h.Linkname, 0) >= 0 {
			return nil, fmt.Errorf("the target of the symbolic link has %d bytes, or one of them is NUL; 1 to %d are possible", len(h.Linkname), erofs.MaxSymlinkLen)
		}
		n, err := f.attributes(h, fs.ModeSymlink)
		if err == nil {
			n.mode, n.target = fs.ModeSymlink|0o777, h.Linkname
		}
		return n, err
	case tar.TypeLink:
		return f.linked(h.Linkname, w, name)
	case tar.TypeChar, tar.TypeBlock, tar.TypeFifo:
		f.out.Devices++
		return nil, nil
	}
	return nil, fmt.Errorf("it is of the type %q, which no image has", h.Typeflag)
}

// linked finds the file that a hard link is another name of. A link at the end of
// its target is not followed: the link itself gets the name.
func (f *flattener) linked(target string, w way, name string) (*node, error) {
	path, err := cleanName(target)
	if err != nil {
		return nil, fmt.Errorf("the target %.300q of the hard link: %w", target, err)
	}
	dirPath, last := splitPath(path)
	dir, err := f.enter(dirPath, 0)
	if err != nil {
		return nil, fmt.Errorf("the target %.300q of the hard link: %w", target, err)
	}
	c, ok := dir.dir().children[last]
	switch {
	case !ok:
		return nil, fmt.Errorf("the target %.300q of the hard link: %w", target, errAbsent)
	case c.isDir():
		return nil, fmt.Errorf("the target %.300q of the hard link is a directory", target)
	case dir.dir() == w.dir() && last == name:
		return nil, errors.New("it is a hard link to itself")
	}
	return c.node, nil
}

// attributes takes from an entry what every kind of one has.
func (f *flattener) attributes(h *tar.Header, kind fs.FileMode) (*node, error) {
	if h.Uid < 0 || h.Gid < 0 || int64(h.Uid) >= math.MaxUint32 || int64(h.Gid) >= math.MaxUint32 {
		return nil, fmt.Errorf("its owner %d:%d is out of range", h.Uid, h.Gid)
	}
	if kind != fs.ModeSymlink && h.Mode&0o6000 != 0 {
		f.out.Setuid++
	}
	for key := range h.PAXRecords {
		if strings.HasPrefix(key, "SCHILY.xattr.") || strings.HasPrefix(key, "LIBARCHIVE.xattr.") {
			f.out.Xattrs++
		}
	}
	n := &node{
		mode:  kind | fs.FileMode(h.Mode)&fs.ModePerm,
		owner: erofs.Owner{UID: uint32(h.Uid), GID: uint32(h.Gid)},
		time:  clampTime(h.ModTime),
	}
	if kind == fs.ModeDir && h.Mode&0o1000 != 0 {
		n.mode |= fs.ModeSticky
	}
	return n, nil
}

// clampTime brings a time into the range that every reader of an image has.
func clampTime(t time.Time) time.Time {
	earliest, latest := time.Unix(0, 0), time.Unix(1<<33, 0)
	switch {
	case t.Before(earliest):
		return earliest
	case t.After(latest):
		return latest
	}
	return t
}
