package erofs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"strings"
)

// On-disk sizes and constants, after fs/erofs/erofs_fs.h.
const (
	superOffset   = 1024
	superMagic    = 0xe0f5e1e2
	blockBits     = 12
	direntSize    = 12
	inodeSize     = 64
	slotSize      = 32 // an inode's number counts slots from the start of the inodes
	compatSumming = 1  // the superblock has a checksum
	extendedPlain = 1  // i_format: 64-byte inode, data layout 0 (flat, not inline)
)

// Close writes directories, inodes and, last, the superblock. It does not close
// the underlying file and does not sync it. The image's size is a multiple of
// [BlockSize].
func (w *Writer) Close() error {
	if w.err != nil {
		return w.err
	}
	nodes, err := w.number()
	if err != nil {
		return w.fail(err)
	}
	for _, node := range nodes {
		if node.mode&modeType != modeDir {
			continue
		}
		if err := w.data(node, strings.NewReader(node.dirents())); err != nil {
			return err
		}
	}
	meta := w.pos / BlockSize
	if err := w.inodes(nodes); err != nil {
		return w.fail(err)
	}
	if w.pos/BlockSize > math.MaxUint32 {
		return w.fail(errors.New("erofs: the image would have more than 2^32 blocks"))
	}
	if err := w.out.Flush(); err != nil {
		return w.fail(fmt.Errorf("erofs: write: %w", err))
	}
	if _, err := w.at.WriteAt(w.superblock(len(nodes), uint32(meta)), 0); err != nil {
		return w.fail(fmt.Errorf("erofs: write superblock: %w", err))
	}
	w.err = errors.New("erofs: the image is closed")
	return nil
}

// number gives every inode its number, the root first: the superblock has 16
// bits for it. Number 0 is left out, because readdir(3) hides an entry with
// inode number 0.
func (w *Writer) number() ([]*inode, error) {
	var nodes []*inode
	add := func(node *inode) {
		if node.nid == 0 { // a link was met under its first name already
			nodes = append(nodes, node)
			node.nid = uint64(len(nodes)) * (inodeSize / slotSize)
		}
	}
	add(w.dirs[""])
	for i := 0; i < len(nodes); i++ {
		if err := nodes[i].sortChildren(); err != nil {
			return nil, err
		}
		for _, c := range nodes[i].children {
			add(c.inode)
		}
	}
	return nodes, nil
}

// dirents is the content of a directory. Each block holds its entries, then
// their names; a name ends where the next begins, and the last one of a block
// at a NUL byte or at the end.
func (node *inode) dirents() string {
	entries := make([]child, 0, len(node.children)+2)
	dot, dotdot := child{".", node}, child{"..", node.parent}
	// A name may sort before "." ("-x", "\n"), so the two have no fixed place.
	for _, c := range node.children {
		for _, own := range []*child{&dot, &dotdot} {
			if own.inode != nil && own.name < c.name {
				entries = append(entries, *own)
				own.inode = nil
			}
		}
		entries = append(entries, c)
	}
	for _, own := range []child{dot, dotdot} {
		if own.inode != nil {
			entries = append(entries, own)
		}
	}

	var out []byte
	for len(entries) > 0 {
		n, used := 0, 0
		for n < len(entries) && used+direntSize+len(entries[n].name) <= BlockSize {
			used += direntSize + len(entries[n].name)
			n++
		}
		out = appendBlock(out, entries[:n])
		entries = entries[n:]
		if len(entries) > 0 {
			out = append(out, zeros[:BlockSize-used]...)
		}
	}
	return string(out)
}

func appendBlock(out []byte, entries []child) []byte {
	nameOff := len(entries) * direntSize
	for _, e := range entries {
		out = binary.LittleEndian.AppendUint64(out, e.nid)
		out = binary.LittleEndian.AppendUint16(out, uint16(nameOff))
		out = append(out, e.fileType(), 0)
		nameOff += len(e.name)
	}
	for _, e := range entries {
		out = append(out, e.name...)
	}
	return out
}

func (node *inode) fileType() byte {
	switch node.mode & modeType {
	case modeDir:
		return typeDir
	case modeSymlink:
		return typeSymlink
	}
	return typeRegular
}

// inodes writes the inode table, which begins with an empty place for the
// number that is left out.
func (w *Writer) inodes(nodes []*inode) error {
	var buf [inodeSize]byte
	if _, err := w.out.Write(buf[:]); err != nil {
		return fmt.Errorf("erofs: write inodes: %w", err)
	}
	w.pos += inodeSize
	le := binary.LittleEndian
	for i, node := range nodes {
		le.PutUint16(buf[0:], extendedPlain)
		le.PutUint16(buf[4:], node.mode)
		le.PutUint64(buf[8:], node.size)
		le.PutUint32(buf[16:], node.block)
		le.PutUint32(buf[20:], uint32(i+1)) // only for 32-bit stat(2)
		le.PutUint32(buf[24:], node.owner.UID)
		le.PutUint32(buf[28:], node.owner.GID)
		le.PutUint64(buf[32:], uint64(node.time.Unix()))
		le.PutUint32(buf[40:], uint32(node.time.Nanosecond()))
		le.PutUint32(buf[44:], node.nlink)
		if _, err := w.out.Write(buf[:]); err != nil {
			return fmt.Errorf("erofs: write inodes: %w", err)
		}
		w.pos += inodeSize
	}
	return w.pad()
}

// checksum is the superblock's own sum: of the rest of its block, with no sum in
// it, and without the final inversion, as the kernel has it. The caller clears it.
func checksum(sb []byte) uint32 { return ^crc32.Checksum(sb, crc32.MakeTable(crc32.Castagnoli)) }

// superblock is block 0 of the image.
func (w *Writer) superblock(inodes int, meta uint32) []byte {
	block := make([]byte, BlockSize)
	sb := block[superOffset:]
	le := binary.LittleEndian
	le.PutUint32(sb[0:], superMagic)
	le.PutUint32(sb[8:], compatSumming)
	sb[12] = blockBits
	le.PutUint16(sb[14:], inodeSize/slotSize) // the root's number
	le.PutUint64(sb[16:], uint64(inodes))
	le.PutUint64(sb[24:], uint64(w.opts.Time.Unix()))
	le.PutUint32(sb[32:], uint32(w.opts.Time.Nanosecond()))
	le.PutUint32(sb[36:], uint32(w.pos/BlockSize))
	le.PutUint32(sb[40:], meta)
	le.PutUint32(sb[4:], checksum(sb))
	return block
}
