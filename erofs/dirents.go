package erofs

import (
	"encoding/binary"
	"fmt"
	"io"
	"strings"
)

// children visits what is in a directory.
func (w *walk) children(n node, nid, parent uint64, path string, depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("erofs: %q is more than %d levels deep", path, maxDepth)
	}
	last, dots := "", 0
	buf := make([]byte, BlockSize)
	for off := int64(0); off < n.data.Size(); off += BlockSize {
		block := buf[:min(BlockSize, n.data.Size()-off)]
		if _, err := io.ReadFull(io.NewSectionReader(n.data, off, int64(len(block))), block); err != nil {
			return fmt.Errorf("erofs: read directory %q: %w", path, err)
		}
		names, err := parseBlock(block)
		if err != nil {
			return fmt.Errorf("erofs: directory %q: %w", path, err)
		}
		for _, d := range names {
			if (off > 0 || last != "") && d.name <= last {
				return fmt.Errorf("erofs: directory %q: %q follows %q, and names are sorted", path, d.name, last)
			}
			last = d.name
			switch {
			case d.name == "." && d.nid == nid && d.kind == modeDir, d.name == ".." && d.nid == parent && d.kind == modeDir:
				dots++
				continue
			case strings.IndexByte(d.name, '/') >= 0:
				return fmt.Errorf("erofs: directory %q: a name is %q", path, d.name)
			}
			if err := checkName(d.name); err != nil {
				return fmt.Errorf("erofs: directory %q: %w", path, err)
			}
			full := d.name
			if path != "" {
				full = path + "/" + d.name
			}
			if len(full) > MaxPathLen {
				return fmt.Errorf("erofs: a path below %.64q has more than %d bytes", path, MaxPathLen)
			}
			if err := w.entry(d.nid, nid, d.kind, full, depth+1); err != nil {
				return err
			}
		}
	}
	if dots != 2 {
		return fmt.Errorf("erofs: directory %q lacks its own entries", path)
	}
	return nil
}

// dirent is a name in a directory.
type dirent struct {
	name string
	nid  uint64
	kind uint16
}

// parseBlock reads one block of a directory; see [appendBlock].
func parseBlock(block []byte) ([]dirent, error) {
	le := binary.LittleEndian
	if len(block) < direntSize {
		return nil, fmt.Errorf("a block has %d bytes", len(block))
	}
	first := int(le.Uint16(block[8:]))
	if first < direntSize || first%direntSize != 0 || first >= len(block) {
		return nil, fmt.Errorf("the names of a block start at byte %d of %d", first, len(block))
	}
	list := make([]dirent, first/direntSize)
	start := first
	for i := range list {
		raw := block[i*direntSize:]
		end := len(block)
		if i+1 < len(list) {
			end = int(le.Uint16(raw[direntSize+8:]))
		} else if n := strings.IndexByte(string(block[start:]), 0); n >= 0 {
			end = start + n
		}
		if end <= start || end > len(block) || raw[11] != 0 {
			return nil, fmt.Errorf("entry %d of a block has no name", i)
		}
		list[i] = dirent{string(block[start:end]), le.Uint64(raw), kindOf(raw[10])}
		if list[i].kind == 0 {
			return nil, fmt.Errorf("%q has the type %d, which is not read here", list[i].name, raw[10])
		}
		start = end
	}
	return list, nil
}

func kindOf(fileType byte) uint16 {
	switch fileType {
	case typeRegular:
		return modeRegular
	case typeDir:
		return modeDir
	case typeSymlink:
		return modeSymlink
	}
	return 0
}
