package substrate

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"tendril/fault"
)

// The modes that a tree's entry can have.
const (
	modeTree    = 0o040000
	modeFile    = 0o100644
	modeExec    = 0o100755
	modeSymlink = 0o120000
	modeGitlink = 0o160000 // a submodule: the id of a commit elsewhere
)

// treeEntry is one line of a tree object.
type treeEntry struct {
	mode uint32
	name string
	id   string
}

// maxTreeSize bounds one tree object, which is read whole: a million names.
const maxTreeSize = 128 << 20

// readTree reads a tree and refuses one that Git could not have made.
func readTree(b *batch, id string) ([]treeEntry, error) {
	data, err := b.read(id, "tree", maxTreeSize)
	if err != nil {
		return nil, err
	}
	entries, err := parseTree(data, b.format)
	if err != nil {
		return nil, fault.New(fault.Invalid, "tree %s: %w", id, err)
	}
	return entries, nil
}

// parseTree reads a tree object: "MODE NAME\0ID" repeated, sorted as Git sorts.
// It refuses, as git-fsck(1) does, what has an unknown mode, a name that is no
// name or that some file system takes for .git, or a name twice.
func parseTree(data []byte, format Format) ([]treeEntry, error) {
	var entries []treeEntry
	names := map[string]bool{}
	for len(data) > 0 {
		head, rest, ok := bytes.Cut(data, []byte{0})
		if !ok || len(rest) < format.size() {
			return nil, errors.New("it is cut off")
		}
		digits, name, ok := strings.Cut(string(head), " ")
		if !ok {
			return nil, errors.New("an entry has no mode")
		}
		mode, err := parseMode(digits)
		if err != nil {
			return nil, fmt.Errorf("entry %q: %w", Escape(name), err)
		}
		if err := checkComponent(name); err != nil {
			return nil, fmt.Errorf("entry %q: %w", Escape(name), err)
		}
		if strings.Contains(name, "/") {
			return nil, fmt.Errorf("entry %q: its name holds a slash", Escape(name))
		}
		if why := refuseName(name, mode); why != "" {
			return nil, fmt.Errorf("entry %q: %s", Escape(name), why)
		}
		if names[name] {
			return nil, fmt.Errorf("entry %q is there twice", Escape(name))
		}
		names[name] = true
		e := treeEntry{mode, name, hex.EncodeToString(rest[:format.size()])}
		if n := len(entries); n > 0 && compareEntries(entries[n-1], e) >= 0 {
			return nil, fmt.Errorf("entry %q is out of order", Escape(name))
		}
		entries = append(entries, e)
		data = rest[format.size():]
	}
	return entries, nil
}

// parseMode takes the modes that Git writes, and two that old versions wrote:
// group-writable files and a leading zero.
func parseMode(digits string) (uint32, error) {
	mode, err := strconv.ParseUint(digits, 8, 32)
	if err == nil {
		switch mode {
		case modeTree, modeFile, modeExec, modeSymlink, modeGitlink:
			return uint32(mode), nil
		case 0o100664:
			return modeFile, nil
		}
	}
	return 0, fmt.Errorf("its mode is %q", Escape(digits))
}

// compareEntries is Git's order: by name, a directory as if it ended in "/".
func compareEntries(a, b treeEntry) int {
	return strings.Compare(sortKey(a), sortKey(b))
}

func sortKey(e treeEntry) string {
	if e.mode == modeTree {
		return e.name + "/"
	}
	return e.name
}

// formatTree is the reverse of parseTree. It sorts the entries.
func formatTree(entries []treeEntry) ([]byte, error) {
	slices.SortFunc(entries, compareEntries)
	var out []byte
	for _, e := range entries {
		id, err := hex.DecodeString(e.id)
		if err != nil {
			return nil, fmt.Errorf("entry %q has no id: %w", Escape(e.name), err)
		}
		out = strconv.AppendUint(out, uint64(e.mode), 8)
		out = append(out, ' ')
		out = append(out, e.name...)
		out = append(out, 0)
		out = append(out, id...)
	}
	return out, nil
}

// baseEntry is a file, symbolic link or submodule of a commit, by full path.
type baseEntry struct {
	path string
	mode uint32
	id   string
	size int64
}

// baseDir is a directory of a commit. The index wants to know how many entries
// and which directories are below it.
type baseDir struct {
	name  string
	id    string
	count int
	dirs  []*baseDir
}

// maxBaseEntries bounds a base tree: a small hostile object can name itself
// exponentially often.
const maxBaseEntries = 2_000_000

// baseTree is everything a commit's tree holds, in the order of the paths.
type baseTree struct {
	objects *batch
	entries []baseEntry
	root    *baseDir
	seen    map[string][]treeEntry // so that a tree in many places is read once
}

// maxSeen bounds how many trees are kept for a second use.
const maxSeen = 4096

func readBaseTree(b *batch, id string) (*baseTree, error) {
	t := &baseTree{objects: b, seen: map[string][]treeEntry{}}
	var err error
	t.root, err = t.walk(id, "", 0)
	return t, err
}

func (t *baseTree) read(id string) ([]treeEntry, error) {
	if entries, ok := t.seen[id]; ok {
		return entries, nil
	}
	entries, err := readTree(t.objects, id)
	if err == nil && len(t.seen) < maxSeen {
		t.seen[id] = entries
	}
	return entries, err
}

func (t *baseTree) walk(id, prefix string, depth int) (*baseDir, error) {
	if depth > maxDepth {
		return nil, fault.New(fault.Invalid, "the base tree is more than %d levels deep", maxDepth)
	}
	entries, err := t.read(id)
	if err != nil {
		if prefix != "" {
			err = fmt.Errorf("in %q: %w", Escape(prefix), err)
		}
		return nil, err
	}
	dir := &baseDir{id: id}
	before := len(t.entries)
	for _, e := range entries {
		path := prefix + e.name
		if len(path) > maxPath {
			return nil, fault.New(fault.Invalid, "path %q of the base tree has more than %d bytes", Escape(path), maxPath)
		}
		if e.mode == modeTree {
			sub, err := t.walk(e.id, path+"/", depth+1)
			if err != nil {
				return nil, err
			}
			sub.name = e.name
			dir.dirs = append(dir.dirs, sub)
			continue
		}
		if len(t.entries) == maxBaseEntries {
			return nil, fault.New(fault.Invalid, "the base tree has more than %d entries", maxBaseEntries)
		}
		t.entries = append(t.entries, baseEntry{path: path, mode: e.mode, id: e.id})
	}
	dir.count = len(t.entries) - before
	return dir, nil
}
