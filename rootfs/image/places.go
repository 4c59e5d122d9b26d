//go:build linux

package image

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"time"

	"tendril/erofs"
	"tendril/rootfs"
)

// placesLayer is the number of what is added to the layers of an image.
const placesLayer = 1 << 30

// maxAccounts bounds a passwd or group of an image, in bytes.
const maxAccounts = 4 << 20

// addPlaces gives the tree what every root file system needs. What the image has
// in the place of one is replaced.
func (f *flattener) addPlaces(p rootfs.Places) error {
	f.n = placesLayer
	f.steps += stepsEach * defaultEntries // the image's are used up, or not
	add := func(path string, err error) error {
		if err != nil {
			return f.refuse(fmt.Errorf("%s: %w", path, err))
		}
		return nil
	}
	var errs []error
	// The content of files first: a link to one may lead through what is emptied.
	texts := map[string]extent{}
	for _, path := range p.Trust {
		if n, err := f.find(path); err == nil && n.mode.IsRegular() {
			texts[path] = n.content
		} else {
			texts[path] = extent{text: []byte{}}
		}
	}
	for path, accounts := range map[string]func([]byte) []byte{"/etc/passwd": p.User.Passwd, "/etc/group": p.User.Group} {
		given, err := f.read(path)
		errs = append(errs, add(path, err))
		text := accounts(given)
		texts[path] = extent{text: text, size: int64(len(text))}
	}
	for path, text := range p.Files {
		texts[path] = extent{text: text, size: int64(len(text))}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}

	own(f.root, f.made, 0o755)
	for _, d := range p.Dirs {
		_, err := f.placeDir(d)
		errs = append(errs, add(d.Path, err))
	}
	for _, d := range p.Empty {
		dir, err := f.placeDir(d)
		errs = append(errs, add(d.Path, err))
		if err == nil {
			clear(dir.children)
		}
	}
	for _, path := range slices.Sorted(maps.Keys(p.Links)) {
		n := &node{mode: fs.ModeSymlink | 0o777, time: f.made, target: p.Links[path]}
		errs = append(errs, add(path, f.place(p, path, n)))
	}
	for _, path := range slices.Sorted(maps.Keys(texts)) {
		n := &node{mode: 0o644, time: f.made, content: texts[path]}
		errs = append(errs, add(path, f.place(p, path, n)))
	}
	return errors.Join(errs...)
}

// read returns the content of a small file of the tree; of one that is not there,
// nothing.
func (f *flattener) read(path string) ([]byte, error) {
	n, err := f.find(path)
	if err != nil || !n.mode.IsRegular() {
		return nil, nil // it is made anew
	}
	if n.content.size > maxAccounts {
		return nil, fmt.Errorf("the image's own has %d bytes, at most %d are read", n.content.size, maxAccounts)
	}
	text, err := io.ReadAll(f.spool.open(n.content))
	if bytes.IndexByte(text, 0) >= 0 {
		return nil, errors.New("the image's own holds NUL bytes")
	}
	return text, err
}

// placeDir makes sure that a path is a directory, that directories lead to it, and
// that it is root's and has the mode.
func (f *flattener) placeDir(d rootfs.Dir) (*node, error) {
	w, err := f.mkdirs(d.Path)
	if err != nil {
		return nil, err
	}
	own(w.dir(), f.made, d.Mode)
	return w.dir(), nil
}

// own makes a directory root's.
func own(dir *node, made time.Time, mode fs.FileMode) {
	dir.mode, dir.owner, dir.time = fs.ModeDir|mode, erofs.Owner{}, made
}

// mkdirs makes directories of a path, in the place of whatever else there is.
func (f *flattener) mkdirs(path string) (way, error) {
	w := way{{node: f.root, there: true}}
	for name := range strings.SplitSeq(path[1:], "/") {
		c, ok := w.dir().children[name]
		if !ok || !c.isDir() {
			c.node = f.newDir(f.n)
			if err := f.put(w, name, c.node, f.n); err != nil {
				return nil, err
			}
		}
		w = append(w, step{name, c.node, true})
	}
	return w, nil
}

// place puts something at a path. Directories on the way may be links, as
// distributions have them.
func (f *flattener) place(p rootfs.Places, path string, n *node) error {
	dir, name := splitPath(path)
	w, err := f.lead(p, dir)
	if err != nil {
		return err
	}
	return f.put(w, name, n, f.n)
}

// lead finds or makes a directory. A link on the way is followed, unless it leads to
// where only the wall puts anything, or to no directory: then it is replaced by one.
func (f *flattener) lead(p rootfs.Places, path string) (way, error) {
	if path == "" {
		return way{{node: f.root, there: true}}, nil
	}
	parent, name := splitPath(path)
	w, err := f.lead(p, parent)
	if err != nil {
		return nil, err
	}
	c := w.dir().children[name]
	switch {
	case c.node != nil && c.isDir():
		return append(w, step{name, c.node, true}), nil
	case c.node != nil && c.isLink():
		to, err := f.walk(w.String()+"/"+name, f.n)
		if err == nil && !keepsEmpty(p, "/"+to.String()) {
			return to, f.attach(to, f.n)
		}
	}
	made := f.newDir(f.n)
	return append(w, step{name, made, true}), f.put(w, name, made, f.n)
}

func keepsEmpty(p rootfs.Places, path string) bool {
	return slices.ContainsFunc(p.Empty, func(d rootfs.Dir) bool {
		return path == d.Path || strings.HasPrefix(path, d.Path+"/")
	})
}
