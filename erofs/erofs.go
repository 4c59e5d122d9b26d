// Package erofs writes EROFS images: read-only file systems in one file, which
// the Linux kernel and gVisor mount without unpacking. It reads the images that
// it writes, and turns one into a tar.
//
// It writes the plainest form of the format that both readers take: blocks of
// 4096 bytes, no compression, no inline data, no extended attributes, 64-byte
// inodes. Every file starts on a block of its own, so that a reader can map it
// into memory straight from the image. The same calls give the same bytes.
//
// Contents are streamed; the names and sizes of the entries are held in memory
// until [Writer.Close]. The package does not judge names beyond what the format
// and a Unix path demand: whether a name is welcome is the caller's business.
//
// The format is described in the kernel's Documentation/filesystems/erofs.rst
// and fs/erofs/erofs_fs.h.
package erofs

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"slices"
	"strings"
	"time"
)

// Bounds of the format and of a Unix path.
const (
	BlockSize     = 4096
	MaxNameLen    = 255
	MaxSymlinkLen = BlockSize - 1 // readers take one page, with its terminator
)

// Options are the same for every entry of an image.
type Options struct {
	UID, GID uint32
	Time     time.Time // modification time where an Attr has none; not before 1970
}

// Attr are an entry's own attributes.
type Attr struct {
	Perm  fs.FileMode // permission bits and fs.ModeSticky; nothing else is kept
	Time  time.Time   // zero: the image's
	Owner *Owner      // nil: the image's
}

// Owner is who an entry belongs to.
type Owner struct{ UID, GID uint32 }

// Writer writes one image. It is not safe for concurrent use. After an error
// the image is unusable, and every later call returns the same error.
type Writer struct {
	opts Options
	at   io.WriterAt
	out  *bufio.Writer
	pos  int64 // where the next byte of data goes
	dirs map[string]*inode
	err  error
}

// inode is one entry. Files and symlinks have their data in the image already;
// a directory has its children, and gets data in Close.
type inode struct {
	mode     uint16
	owner    Owner
	time     time.Time
	size     uint64
	block    uint32
	nlink    uint32
	nid      uint64
	parent   *inode
	children []child
	names    map[string]*inode // the children by name, once a link was looked for here
	implied  bool              // a directory that only a longer path has named so far
}

type child struct {
	name string
	*inode
}

// File types in the mode of an inode and in a directory entry.
const (
	modeDir     = 0o040000
	modeRegular = 0o100000
	modeSymlink = 0o120000
	modeType    = 0o170000
	modeSticky  = 0o001000

	typeRegular = 1
	typeDir     = 2
	typeSymlink = 7
)

// New starts an image that begins at offset 0 of w, with an empty root
// directory of mode 0755.
func New(w io.WriterAt, opts Options) *Writer {
	wr := &Writer{
		opts: opts,
		at:   w,
		out:  bufio.NewWriterSize(io.NewOffsetWriter(w, BlockSize), 1<<20),
		pos:  BlockSize, // block 0 is the superblock's
	}
	root := wr.newInode(modeDir, Attr{Perm: 0o755})
	root.parent = root
	root.nlink = 2
	wr.dirs = map[string]*inode{"": root}
	return wr
}

// Dir adds a directory. Directories that a longer path implies are made with
// mode 0755; naming one of those gives it its attributes. The empty path is the
// root.
func (w *Writer) Dir(path string, attr Attr) error {
	if w.err != nil {
		return w.err
	}
	if d, ok := w.dirs[path]; ok && (d.implied || path == "") {
		d.implied = false
		d.mode, d.owner, d.time = modeDir|perm(attr), w.ownerOf(attr), w.timeOf(attr)
		return nil
	} else if ok {
		return w.fail(fmt.Errorf("erofs: directory %q is there already", path))
	}
	_, err := w.mkdir(path, attr)
	return w.fail(err)
}

// File adds a regular file with everything that content yields, and returns
// its size. Parents are made as needed.
func (w *Writer) File(path string, attr Attr, content io.Reader) (int64, error) {
	node, err := w.add(path, modeRegular, attr)
	if err != nil {
		return 0, err
	}
	err = w.data(node, content)
	return int64(node.size), err
}

// Symlink adds a symbolic link with mode 0777.
func (w *Writer) Symlink(path, target string, attr Attr) error {
	if len(target) == 0 || len(target) > MaxSymlinkLen {
		return w.fail(fmt.Errorf("erofs: target of symlink %q has %d bytes, at most %d and at least 1 are possible", path, len(target), MaxSymlinkLen))
	}
	attr.Perm = 0o777
	node, err := w.add(path, modeSymlink, attr)
	if err != nil {
		return err
	}
	return w.data(node, strings.NewReader(target))
}

// Link adds one more name of a file or symbolic link that is there already.
func (w *Writer) Link(path, target string) error {
	if w.err != nil {
		return w.err
	}
	node := w.lookup(target)
	if node == nil {
		return w.fail(fmt.Errorf("erofs: link %q: there is no file %q", path, target))
	}
	dir, name, err := w.parent(path)
	if err != nil {
		return w.fail(err)
	}
	node.nlink++
	dir.addChild(name, node)
	return nil
}

// lookup finds an entry that is not a directory.
func (w *Writer) lookup(path string) *inode {
	dirPath, name := "", path
	if i := strings.LastIndexByte(path, '/'); i >= 0 {
		dirPath, name = path[:i], path[i+1:]
	}
	dir := w.dirs[dirPath]
	if dir == nil {
		return nil
	}
	if dir.names == nil {
		dir.names = make(map[string]*inode, len(dir.children))
		for _, c := range dir.children {
			dir.names[c.name] = c.inode
		}
	}
	if node := dir.names[name]; node != nil && node.mode&modeType != modeDir {
		return node
	}
	return nil
}

// fail keeps the first error: half an entry cannot be taken back.
func (w *Writer) fail(err error) error {
	if w.err == nil {
		w.err = err
	}
	return err
}

func (w *Writer) timeOf(attr Attr) time.Time {
	if attr.Time.IsZero() {
		return w.opts.Time
	}
	return attr.Time
}

func (w *Writer) ownerOf(attr Attr) Owner {
	if attr.Owner == nil {
		return Owner{w.opts.UID, w.opts.GID}
	}
	return *attr.Owner
}

func perm(attr Attr) uint16 {
	mode := uint16(attr.Perm.Perm())
	if attr.Perm&fs.ModeSticky != 0 {
		mode |= modeSticky
	}
	return mode
}

func (w *Writer) newInode(kind uint16, attr Attr) *inode {
	return &inode{mode: kind | perm(attr), owner: w.ownerOf(attr), time: w.timeOf(attr), nlink: 1}
}

// add makes an entry that is not a directory and links it into its parent.
func (w *Writer) add(path string, kind uint16, attr Attr) (*inode, error) {
	if w.err != nil {
		return nil, w.err
	}
	dir, name, err := w.parent(path)
	if err != nil {
		return nil, w.fail(err)
	}
	node := w.newInode(kind, attr)
	node.parent = dir
	dir.addChild(name, node)
	return node, nil
}

func (node *inode) addChild(name string, c *inode) {
	node.children = append(node.children, child{name, c})
	if node.names != nil {
		node.names[name] = c
	}
}

// parent returns the directory that path is in, made if need be, and the last
// component.
func (w *Writer) parent(path string) (*inode, string, error) {
	dirPath, name := "", path
	if i := strings.LastIndexByte(path, '/'); i >= 0 {
		dirPath, name = path[:i], path[i+1:]
		if dirPath == "" {
			return nil, "", fmt.Errorf("erofs: path %q is absolute", path)
		}
	}
	if err := checkName(name); err != nil {
		return nil, "", fmt.Errorf("erofs: path %q: %w", path, err)
	}
	if dir, ok := w.dirs[dirPath]; ok {
		return dir, name, nil
	}
	dir, err := w.mkdir(dirPath, Attr{Perm: 0o755})
	if err != nil {
		return nil, "", err
	}
	dir.implied = true
	return dir, name, nil
}

// mkdir adds a directory that is not there yet, and the parents it lacks.
func (w *Writer) mkdir(path string, attr Attr) (*inode, error) {
	parent, name, err := w.parent(path)
	if err != nil {
		return nil, err
	}
	dir := w.newInode(modeDir, attr)
	dir.parent = parent
	dir.nlink = 2
	parent.nlink++
	parent.addChild(name, dir)
	w.dirs[path] = dir
	return dir, nil
}

// checkName refuses what no directory can hold.
func checkName(name string) error {
	switch {
	case name == "":
		return errors.New("a component is empty")
	case name == "." || name == "..":
		return fmt.Errorf("a component is %q", name)
	case len(name) > MaxNameLen:
		return fmt.Errorf("a name has %d bytes, at most %d are possible", len(name), MaxNameLen)
	case strings.IndexByte(name, 0) >= 0:
		return errors.New("a name holds a NUL byte")
	}
	return nil
}

// data streams content to whole blocks and notes where it is.
func (w *Writer) data(node *inode, content io.Reader) error {
	start := w.pos
	n, err := io.Copy(w.out, content)
	w.pos += n
	if err != nil {
		return w.fail(fmt.Errorf("erofs: write data: %w", err))
	}
	node.size = uint64(n)
	if n == 0 {
		return nil // an empty file has no block
	}
	if start/BlockSize > math.MaxUint32 {
		return w.fail(errors.New("erofs: the image would have more than 2^32 blocks"))
	}
	node.block = uint32(start / BlockSize)
	return w.pad()
}

var zeros [BlockSize]byte

// pad fills the block that was begun.
func (w *Writer) pad() error {
	n := int(-w.pos & (BlockSize - 1))
	if _, err := w.out.Write(zeros[:n]); err != nil {
		return w.fail(fmt.Errorf("erofs: write padding: %w", err))
	}
	w.pos += int64(n)
	return nil
}

// sortChildren puts a directory's entries in the order of their bytes, which
// readers' binary search relies on, and refuses two of one name.
func (node *inode) sortChildren() error {
	slices.SortFunc(node.children, func(a, b child) int { return strings.Compare(a.name, b.name) })
	for i := 1; i < len(node.children); i++ {
		if node.children[i].name == node.children[i-1].name {
			return fmt.Errorf("erofs: %q is in one directory twice", node.children[i].name)
		}
	}
	return nil
}
