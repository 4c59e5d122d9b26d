package substrate

import (
	"bytes"
	"strings"
)

// baseView answers what the base tree has at a path. It reads only the trees
// that are asked for.
type baseView struct {
	objects *batch
	root    string
	dirs    map[string]map[string]treeEntry // nil: no directory of the base
}

func newBaseView(objects *batch, root string) *baseView {
	return &baseView{objects: objects, root: root, dirs: map[string]map[string]treeEntry{}}
}

func splitPath(path string) (dir, name string) {
	i := strings.LastIndexByte(path, '/')
	return path[:max(i, 0)], path[i+1:]
}

// at returns the base's entry at a path; the mode is 0 when there is none.
func (v *baseView) at(path string) (treeEntry, error) {
	if path == "" {
		return treeEntry{mode: modeTree, id: v.root}, nil
	}
	dir, name := splitPath(path)
	entries, err := v.dir(dir)
	return entries[name], err
}

func (v *baseView) dir(path string) (map[string]treeEntry, error) {
	if entries, ok := v.dirs[path]; ok {
		return entries, nil
	}
	e, err := v.at(path)
	if err != nil {
		return nil, err
	}
	var byName map[string]treeEntry
	if e.mode == modeTree {
		entries, err := readTree(v.objects, e.id)
		if err != nil {
			return nil, err
		}
		byName = make(map[string]treeEntry, len(entries))
		for _, e := range entries {
			byName[e.name] = e
		}
	}
	v.dirs[path] = byName
	return byName, nil
}

// editTree is the base tree with changes. Only directories on a changed path
// are in memory.
type editTree struct {
	base *baseView
	root *editDir
}

type editDir struct {
	path    string
	inherit bool // what edits does not name is as in the base
	edits   map[string]edit
}

// edit is what is at a name now: nothing, a directory, or an entry.
type edit struct {
	entry treeEntry // mode 0: nothing
	dir   *editDir
	// submodule is what an untouched, and therefore empty, directory of a
	// submodule stands for.
	submodule *treeEntry
}

func newEditTree(base *baseView) *editTree {
	return &editTree{base, &editDir{inherit: true, edits: map[string]edit{}}}
}

// look returns what is at a name in a directory now.
func (t *editTree) look(dir *editDir, name string) (edit, error) {
	if e, ok := dir.edits[name]; ok || !dir.inherit {
		return e, nil
	}
	entries, err := t.base.dir(dir.path)
	return edit{entry: entries[name]}, err
}

// enter returns the directory at a name. It is made, in place of whatever else
// is there, if create is set; otherwise it may be nil.
func (t *editTree) enter(dir *editDir, name string, create bool) (*editDir, error) {
	e, err := t.look(dir, name)
	if err != nil || e.dir != nil {
		return e.dir, err
	}
	inherit := e.entry.mode == modeTree
	if !inherit && !create {
		return nil, nil
	}
	path := strings.TrimPrefix(dir.path+"/"+name, "/")
	sub := edit{dir: &editDir{path: path, inherit: inherit, edits: map[string]edit{}}}
	if !inherit {
		base, err := t.base.at(path)
		if err != nil {
			return nil, err
		}
		if base.mode == modeGitlink {
			sub.submodule = &base
		}
	}
	dir.edits[name] = sub
	return sub.dir, nil
}

// parent walks to the directory that a path is in.
func (t *editTree) parent(path string, create bool) (*editDir, string, error) {
	dir := t.root
	for {
		name, rest, deeper := strings.Cut(path, "/")
		if !deeper {
			return dir, name, nil
		}
		sub, err := t.enter(dir, name, create)
		if err != nil || sub == nil {
			return nil, "", err
		}
		dir, path = sub, rest
	}
}

// set puts an entry at a path, in place of whatever is there.
func (t *editTree) set(path string, mode uint32, id string) error {
	dir, name, err := t.parent(path, true)
	if err != nil {
		return err
	}
	dir.edits[name] = edit{entry: treeEntry{mode, name, id}}
	return nil
}

// setDir makes sure that a path is a directory. A directory stays as it is.
func (t *editTree) setDir(path string) error {
	dir, name, err := t.parent(path, true)
	if err != nil {
		return err
	}
	_, err = t.enter(dir, name, true)
	return err
}

// remove takes away what is at a path, with everything below it.
func (t *editTree) remove(path string) error {
	dir, name, err := t.parent(path, false)
	if err != nil || dir == nil {
		return err
	}
	dir.edits[name] = edit{}
	return nil
}

// at returns the entry at a path now; the mode is 0 for nothing, and for a
// directory, which has no id before it is written.
func (t *editTree) at(path string) (treeEntry, error) {
	dir, name, err := t.parent(path, false)
	if err != nil || dir == nil {
		return treeEntry{}, err
	}
	e, err := t.look(dir, name)
	if e.entry.mode == modeTree {
		return treeEntry{}, err
	}
	return e.entry, err
}

// write gives the changed trees to the spool, and returns the root's id. It
// notes in used every object that the result needs and the base may not have.
// Directories without entries vanish, since Git has none.
func (t *editTree) write(s *spool, used map[string]bool) (string, error) {
	id, _, err := t.writeDir(s, t.root, used)
	return id, err
}

func (t *editTree) writeDir(s *spool, dir *editDir, used map[string]bool) (id string, empty bool, err error) {
	var entries []treeEntry
	if dir.inherit {
		base, err := t.base.dir(dir.path)
		if err != nil {
			return "", false, err
		}
		for name, e := range base {
			if _, ok := dir.edits[name]; !ok {
				entries = append(entries, e)
			}
		}
	}
	for name, e := range dir.edits {
		entry := e.entry
		if e.dir != nil {
			id, empty, err := t.writeDir(s, e.dir, used)
			if err != nil {
				return "", false, err
			}
			switch {
			case !empty:
				entry = treeEntry{modeTree, name, id}
			case e.submodule != nil:
				entry = *e.submodule
			}
		}
		if entry.mode != 0 {
			entries = append(entries, entry)
			used[entry.id] = true
		}
	}
	if len(entries) == 0 && dir != t.root {
		return "", true, nil
	}
	data, err := formatTree(entries)
	if err != nil {
		return "", false, err
	}
	base, err := t.base.at(dir.path)
	if err != nil {
		return "", false, err
	}
	id, err = s.add(packTree, int64(len(data)), bytes.NewReader(data), func(id string) bool {
		return base.mode == modeTree && id == base.id
	})
	used[id] = true
	return id, false, err
}
