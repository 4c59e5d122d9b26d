//go:build linux

package image

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"tendril/erofs"
)

// Bounds on one name of a tree. The first three are Linux's; directories are not
// nested deeper than what everything that walks a tree here can follow.
const (
	maxPath     = 4095 // PATH_MAX without its terminator
	maxName     = 255  // NAME_MAX
	maxFollowed = 40   // symbolic links on the way to one name, as path_resolution(7) has it
	maxDepth    = 512
)

// node is a directory, a file or a symbolic link. A file or a link may be in the
// tree under several names.
type node struct {
	mode     fs.FileMode // fs.ModeDir, fs.ModeSymlink or neither; permission bits; fs.ModeSticky
	owner    erofs.Owner
	time     time.Time
	target   string           // of a link
	content  extent           // of a file
	children map[string]child // of a directory

	// Of a directory: the last layer that named anything below it, and the last
	// one after which nothing of an earlier layer was below it.
	below, pruned int
}

// child is a name in a directory, and the last layer that gave it. The layers
// are numbered from 1; what is added afterwards has a number of its own.
type child struct {
	*node
	layer int
}

// extent is where the content of a file is: in the spool, or in memory.
type extent struct {
	offset, size int64
	text         []byte
}

func (n *node) isDir() bool  { return n.mode.IsDir() }
func (n *node) isLink() bool { return n.mode&fs.ModeSymlink != 0 }

// tree is a file system in memory, but for the content of its files.
type tree struct {
	root  *node
	left  int // names that may still be made
	steps int // steps that the ways to names may still have
	made  time.Time
}

// stepsEach is how many steps there may be for each name that may be made. A way
// through links can be many times longer than the name that it is the way to.
const stepsEach = 64

func newTree(entries int, made time.Time) *tree {
	t := &tree{left: entries, steps: stepsEach * entries, made: made}
	t.root = t.newDir(0)
	return t
}

// newDir is a directory that nothing says anything about.
func (t *tree) newDir(layer int) *node {
	return &node{mode: fs.ModeDir | 0o755, time: t.made, children: map[string]child{}, below: layer, pruned: layer}
}

// The answers of the file system to a name.
var (
	errAbsent = errors.New("there is no such file or directory")
	errNotDir = errors.New("it leads through something that is no directory")
	errLoop   = fmt.Errorf("it leads through more than %d symbolic links", maxFollowed)
	errDeep   = fmt.Errorf("it leads to a path of more than %d levels or %d bytes", maxDepth, maxPath)
	errMany   = errors.New("the image has too many entries")
	errLong   = errors.New("the ways to the entries of the image are too long")
)

// step is a directory on the way to another.
type step struct {
	name string
	*node
	there bool // in the tree already
}

// way is the path to a directory, the root first.
type way []step

func (w way) dir() *node { return w[len(w)-1].node }

func (w way) String() string {
	names := make([]string, len(w)-1)
	for i, s := range w[1:] {
		names[i] = s.name
	}
	return strings.Join(names, "/")
}

// enter finds a directory as a process would whose root the tree is: symbolic
// links are followed, an absolute one from the root, and ".." ends there. With
// layer > 0 what is missing is made for that layer, otherwise it is an error.
func (t *tree) enter(path string, layer int) (way, error) {
	w, err := t.walk(path, layer)
	if err != nil {
		return nil, err
	}
	return w, t.attach(w, layer)
}

// walk is enter without putting into the tree what was missing.
func (t *tree) walk(path string, layer int) (way, error) {
	w := way{{node: t.root, there: true}}
	followed := 0
	for rest := path; rest != ""; {
		name, after, _ := strings.Cut(rest, "/")
		rest = after
		if t.steps--; t.steps < 0 {
			return nil, errLong
		}
		switch name {
		case "", ".":
			continue
		case "..":
			w = w[:max(1, len(w)-1)]
			continue
		}
		c, ok := w.dir().children[name]
		switch {
		case !ok && layer == 0:
			return nil, errAbsent
		case !ok:
			w = append(w, step{name, t.newDir(layer), false})
		case c.isLink():
			if followed++; followed > maxFollowed {
				return nil, errLoop
			}
			if len(c.target)+len(rest) > 2*maxPath {
				return nil, errDeep
			}
			if strings.HasPrefix(c.target, "/") {
				w = w[:1]
			}
			rest = c.target + "/" + rest
		case !c.isDir():
			return nil, errNotDir
		default:
			w = append(w, step{name, c.node, true})
		}
		if len(w) > maxDepth {
			return nil, errDeep
		}
	}
	length := 0
	for _, s := range w {
		length += len(s.name) + 1
	}
	if length > maxPath-maxName-1 {
		return nil, errDeep
	}
	return w, nil
}

// attach puts the directories of a way that were missing into the tree.
func (t *tree) attach(w way, layer int) error {
	for i, s := range w[1:] {
		if s.there {
			continue
		}
		if err := t.put(w[:i+1], s.name, s.node, layer); err != nil {
			return err
		}
	}
	return nil
}

// put gives a directory an entry in the place of what it has by that name.
func (t *tree) put(w way, name string, n *node, layer int) error {
	if t.left--; t.left < 0 {
		return errMany
	}
	w.dir().children[name] = child{n, layer}
	for _, s := range w {
		s.below = layer
	}
	return nil
}

// hide removes what earlier layers have under a name. What this layer has there
// stays, in directories that only it says something about.
func (t *tree) hide(w way, name string, layer int) {
	c, ok := w.dir().children[name]
	switch {
	case !ok:
	case c.isDir() && (c.layer == layer || c.below == layer):
		if c.layer != layer {
			own := t.newDir(layer)
			c.mode, c.owner, c.time = own.mode, own.owner, own.time
			w.dir().children[name] = child{c.node, layer}
		}
		t.prune(c.node, layer)
	case c.layer != layer:
		delete(w.dir().children, name)
	}
}

// prune removes everything of earlier layers that is below a directory.
func (t *tree) prune(dir *node, layer int) {
	if dir.pruned == layer {
		return // and nothing of an earlier one can have come since
	}
	dir.pruned = layer
	w := way{{node: dir}}
	for name := range dir.children {
		t.hide(w, name, layer)
	}
}

// find returns what a path leads to, following a link at its end too.
func (t *tree) find(path string) (*node, error) {
	for range maxFollowed {
		dir, name := splitPath(path)
		w, err := t.enter(dir, 0)
		if err != nil {
			return nil, err
		}
		if name == "" || name == "." || name == ".." {
			w, err = t.enter(path, 0)
			if err != nil {
				return nil, err
			}
			return w.dir(), nil
		}
		c, ok := w.dir().children[name]
		if !ok {
			return nil, errAbsent
		}
		if !c.isLink() {
			return c.node, nil
		}
		path = c.target
		if !strings.HasPrefix(path, "/") {
			path = w.String() + "/" + path
		}
	}
	return nil, errLoop
}

func splitPath(path string) (dir, name string) {
	i := strings.LastIndexByte(path, '/')
	return path[:max(0, i)], path[i+1:]
}

// cleanName gives an entry's name its one form: relative, without empty and "."
// components, empty for the root. A name that climbs is in no honest image; the
// other forms are (https://github.com/opencontainers/image-spec/blob/main/layer.md
// leaves them open, and archivers write all of them).
func cleanName(name string) (string, error) {
	switch {
	case name == "":
		return "", errors.New("it has no name")
	case strings.IndexByte(name, 0) >= 0:
		return "", errors.New("its name holds a NUL byte")
	case len(name) > maxPath:
		return "", fmt.Errorf("its name has more than %d bytes", maxPath)
	}
	var names []string
	for part := range strings.SplitSeq(name, "/") {
		switch {
		case part == "" || part == ".":
		case part == "..":
			return "", errors.New("its name leads upwards")
		case len(part) > maxName:
			return "", fmt.Errorf("a part of its name has more than %d bytes", maxName)
		default:
			names = append(names, part)
		}
	}
	if len(names) > maxDepth {
		return "", errDeep
	}
	return strings.Join(names, "/"), nil
}
