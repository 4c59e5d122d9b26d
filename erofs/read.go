package erofs

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"time"
)

// Bounds on what [Reader.Walk] takes.
const (
	MaxPathLen = 4095 // bytes, PATH_MAX without its terminator
	maxDepth   = 2048 // as deep as a path of that length can be
)

// Reader reads an image in the form that [Writer] makes and refuses any other.
// It takes the image's bytes for hostile: it reads nothing outside of the image
// and takes a walk that would not end, or would yield more than the image holds,
// for damage. It is safe for concurrent use.
type Reader struct {
	at     io.ReaderAt
	size   int64
	meta   int64 // where the inode table starts
	root   uint64
	inodes uint64
}

// Entry is one name of a tree.
type Entry struct {
	Path     string      // relative, of clean components; the root's is empty
	Mode     fs.FileMode // type, permission bits and fs.ModeSticky
	UID, GID uint32
	Time     time.Time
	Size     int64  // of a file's content in bytes, otherwise 0
	Target   string // of a symbolic link
	Link     string // the path under which this file or symbolic link was met before; empty: it was not

	content *io.SectionReader
}

// Content reads a file's content; it is empty for anything else. It can be used
// after the walk, while the image's ReaderAt can.
func (e *Entry) Content() io.Reader {
	if e.content == nil {
		return io.NewSectionReader(nil, 0, 0)
	}
	return io.NewSectionReader(e.content, 0, e.Size)
}

// Open looks at the superblock of the image at: whether this package wrote it
// and whether it has its whole size. The rest is looked at when it is read.
func Open(at io.ReaderAt, size int64) (*Reader, error) {
	block := make([]byte, BlockSize)
	if size < BlockSize {
		return nil, fmt.Errorf("erofs: an image of %d bytes has no superblock", size)
	}
	if _, err := at.ReadAt(block, 0); err != nil {
		return nil, fmt.Errorf("erofs: read the superblock: %w", err)
	}
	le, sb := binary.LittleEndian, block[superOffset:]
	sum := le.Uint32(sb[4:])
	clear(sb[4:8])
	switch {
	case le.Uint32(sb) != superMagic:
		return nil, errors.New("erofs: this is no EROFS image")
	case sum != checksum(sb):
		return nil, errors.New("erofs: the superblock is damaged: its checksum differs")
	case sb[12] != blockBits || le.Uint32(sb[8:]) != compatSumming || le.Uint32(sb[80:]) != 0:
		return nil, errors.New("erofs: the image has features that are not read here")
	case size != int64(le.Uint32(sb[36:]))*BlockSize:
		return nil, fmt.Errorf("erofs: the image has %d bytes and should have %d blocks of %d", size, le.Uint32(sb[36:]), BlockSize)
	}
	return &Reader{
		at: at, size: size,
		meta:   int64(le.Uint32(sb[40:])) * BlockSize,
		root:   uint64(le.Uint16(sb[14:])),
		inodes: le.Uint64(sb[16:]),
	}, nil
}

// Walk calls visit for every name of the tree: a directory before what is in
// it, names in the order of their bytes. It ends with the first error.
func (r *Reader) Walk(visit func(*Entry) error) error {
	w := &walk{r: r, visit: visit, left: r.size, seen: map[uint64]string{}, dirs: map[uint64]bool{}}
	return w.entry(r.root, r.root, modeDir, "", 0)
}

// walk is what one walk has met so far.
type walk struct {
	r     *Reader
	visit func(*Entry) error
	left  int64             // bytes of data that inodes may still have: each has blocks of its own
	seen  map[uint64]string // files of more than one name
	dirs  map[uint64]bool   // a directory has one name
}

// node is an inode as it is stored.
type node struct {
	mode     uint16
	uid, gid uint32
	time     time.Time
	nlink    uint32
	data     *io.SectionReader
}

// inode reads an inode, and checks that its data is inside of the image.
func (r *Reader) inode(nid uint64) (node, error) {
	const perInode = inodeSize / slotSize
	if nid == 0 || nid%perInode != 0 || nid/perInode > r.inodes {
		return node{}, fmt.Errorf("there is no inode %d", nid)
	}
	off := r.meta + int64(nid)*slotSize
	var buf [inodeSize]byte
	if off < BlockSize || off > r.size-inodeSize {
		return node{}, fmt.Errorf("inode %d is outside of the image", nid)
	}
	if _, err := r.at.ReadAt(buf[:], off); err != nil {
		return node{}, fmt.Errorf("inode %d: %w", nid, err)
	}
	le := binary.LittleEndian
	size, start := le.Uint64(buf[8:]), int64(le.Uint32(buf[16:]))*BlockSize
	seconds, nanos := le.Uint64(buf[32:]), le.Uint32(buf[40:])
	switch {
	case le.Uint16(buf[0:]) != extendedPlain || le.Uint16(buf[2:]) != 0:
		return node{}, fmt.Errorf("inode %d has a form that is not read here", nid)
	case size > uint64(r.size) || (size > 0 && (start < BlockSize || start > r.size-int64(size))):
		return node{}, fmt.Errorf("the data of inode %d is outside of the image", nid)
	case seconds > math.MaxInt64 || nanos >= 1e9:
		return node{}, fmt.Errorf("the time of inode %d is out of range", nid)
	}
	return node{
		mode: le.Uint16(buf[4:]), uid: le.Uint32(buf[24:]), gid: le.Uint32(buf[28:]),
		time: time.Unix(int64(seconds), int64(nanos)), nlink: le.Uint32(buf[44:]),
		data: io.NewSectionReader(r.at, start, int64(size)),
	}, nil
}

// entry visits an inode under the path that led to it.
func (w *walk) entry(nid, parent uint64, kind uint16, path string, depth int) error {
	n, err := w.r.inode(nid)
	if err != nil {
		return fmt.Errorf("erofs: %q: %w", path, err)
	}
	e := &Entry{
		Path: path, UID: n.uid, GID: n.gid, Time: n.time,
		Mode: fs.FileMode(n.mode) & fs.ModePerm,
	}
	if n.mode&modeSticky != 0 {
		e.Mode |= fs.ModeSticky
	}
	if n.mode&modeType != kind || n.mode&^(modeType|modeSticky|0o777) != 0 {
		return fmt.Errorf("erofs: %q: inode %d has mode %#o, and its name says %#o", path, nid, n.mode, kind)
	}
	if first, ok := w.seen[nid]; ok && kind != modeDir {
		e.Link = first
	} else if err := w.account(n); err != nil {
		return fmt.Errorf("erofs: %q: %w", path, err)
	} else if n.nlink > 1 && kind != modeDir {
		w.seen[nid] = path
	}
	switch kind {
	case modeDir:
		if w.dirs[nid] {
			return fmt.Errorf("erofs: %q: directory %d has two names", path, nid)
		}
		w.dirs[nid] = true
		e.Mode |= fs.ModeDir
		if err := w.visit(e); err != nil {
			return err
		}
		return w.children(n, nid, parent, path, depth)
	case modeSymlink:
		e.Mode |= fs.ModeSymlink
		if e.Target, err = n.target(); err != nil {
			return fmt.Errorf("erofs: %q: %w", path, err)
		}
	default:
		e.Size, e.content = n.data.Size(), n.data
	}
	return w.visit(e)
}

// account takes an inode's blocks from what the image has, so that inodes which
// share data cannot yield more than there is.
func (w *walk) account(n node) error {
	w.left -= (n.data.Size() + BlockSize - 1) / BlockSize * BlockSize
	if w.left < 0 {
		return errors.New("its data, with that of what came before, is more than the image has")
	}
	return nil
}

func (n node) target() (string, error) {
	if n.data.Size() == 0 || n.data.Size() > MaxSymlinkLen {
		return "", fmt.Errorf("the target of a symbolic link has %d bytes", n.data.Size())
	}
	target := make([]byte, n.data.Size())
	if _, err := io.ReadFull(n.data, target); err != nil {
		return "", fmt.Errorf("the target of a symbolic link: %w", err)
	}
	if bytes.IndexByte(target, 0) >= 0 {
		return "", errors.New("the target of a symbolic link holds a NUL byte")
	}
	return string(target), nil
}
