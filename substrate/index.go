package substrate

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The index file of gitformat-index(5). It is written so that Git, with
// core.checkStat=minimal, finds the stat data of every file as it recorded it
// and therefore reads no content.

const (
	indexNameMask     = 0xfff
	indexExtended     = 0x4000
	indexSkipWorktree = 0x4000 // in the extended flags
)

// formatIndex returns an index of version 2 with a cache tree. mtime is that of
// every file; the index file itself has to be younger, or Git distrusts it.
func formatIndex(t *baseTree, format Format, owner Owner, mtime time.Time) ([]byte, error) {
	var out bytes.Buffer
	writeIndexHeader(&out, 2, len(t.entries))
	for _, e := range t.entries {
		stat := indexStat{mtime: mtime, owner: owner, size: e.size}
		if e.mode == modeGitlink {
			stat = indexStat{}
		}
		if err := writeIndexEntry(&out, e, stat, 0); err != nil {
			return nil, err
		}
	}
	var tree bytes.Buffer
	if err := writeCacheTree(&tree, t.root); err != nil {
		return nil, err
	}
	out.WriteString("TREE")
	_ = binary.Write(&out, binary.BigEndian, uint32(tree.Len()))
	out.Write(tree.Bytes())
	return sealIndex(&out, format), nil
}

// formatSkipIndex returns an index of version 3 whose entries are marked
// skip-worktree: Git reads them from objects, where no working tree is.
func formatSkipIndex(entries []baseEntry, format Format) ([]byte, error) {
	slices.SortFunc(entries, func(a, b baseEntry) int { return strings.Compare(a.path, b.path) })
	var out bytes.Buffer
	writeIndexHeader(&out, 3, len(entries))
	for _, e := range entries {
		if err := writeIndexEntry(&out, e, indexStat{}, indexSkipWorktree); err != nil {
			return nil, err
		}
	}
	return sealIndex(&out, format), nil
}

type indexStat struct {
	mtime time.Time
	owner Owner
	size  int64
}

func writeIndexHeader(out *bytes.Buffer, version uint32, n int) {
	out.WriteString("DIRC")
	_ = binary.Write(out, binary.BigEndian, [2]uint32{version, uint32(n)})
}

func writeIndexEntry(out *bytes.Buffer, e baseEntry, stat indexStat, extended uint16) error {
	id, err := hex.DecodeString(e.id)
	if err != nil {
		return fmt.Errorf("index entry %q: %w", Escape(e.path), err)
	}
	start := out.Len()
	var seconds uint32
	if !stat.mtime.IsZero() {
		seconds = uint32(stat.mtime.Unix())
	}
	_ = binary.Write(out, binary.BigEndian, [10]uint32{
		seconds, 0, seconds, 0, // changed, modified
		0, 0, e.mode, // device and inode are not looked at
		stat.owner.UID, stat.owner.GID, uint32(stat.size),
	})
	out.Write(id)
	flags := uint16(min(len(e.path), indexNameMask))
	if extended != 0 {
		flags |= indexExtended
	}
	_ = binary.Write(out, binary.BigEndian, flags)
	if extended != 0 {
		_ = binary.Write(out, binary.BigEndian, extended)
	}
	out.WriteString(e.path)
	// One to eight NUL bytes, to a multiple of eight.
	out.Write(make([]byte, 8-(out.Len()-start)%8))
	return nil
}

// writeCacheTree writes the extension that lets Git compare the index with HEAD
// without reading trees.
func writeCacheTree(out *bytes.Buffer, dir *baseDir) error {
	id, err := hex.DecodeString(dir.id)
	if err != nil {
		return fmt.Errorf("index tree %q: %w", Escape(dir.name), err)
	}
	out.WriteString(dir.name + "\x00" + strconv.Itoa(dir.count) + " " + strconv.Itoa(len(dir.dirs)) + "\n")
	out.Write(id)
	for _, sub := range dir.dirs {
		if err := writeCacheTree(out, sub); err != nil {
			return err
		}
	}
	return nil
}

// sealIndex appends the checksum.
func sealIndex(out *bytes.Buffer, format Format) []byte {
	h := format.new()
	h.Write(out.Bytes())
	return h.Sum(out.Bytes())
}
