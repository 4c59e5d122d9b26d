package substrate

import (
	"encoding/binary"
	"hash/crc32"
	"os"

	"tendril/erofs"
)

// intact reports whether an image has a whole superblock and the size that it
// gives: what a full disk, a crash or a careless hand leaves behind has not. The
// content is not read; that would cost what the cache saves.
func intact(image *os.File, size int64) bool {
	const super, magic = 1024, 0xe0f5e1e2 // of Linux, fs/erofs/erofs_fs.h
	block := make([]byte, erofs.BlockSize)
	if _, err := image.ReadAt(block, 0); err != nil {
		return false
	}
	le, sb := binary.LittleEndian, block[super:]
	sum, blocks := le.Uint32(sb[4:]), le.Uint32(sb[36:])
	if le.Uint32(sb) != magic || size != int64(blocks)*erofs.BlockSize {
		return false
	}
	clear(sb[4:8]) // it is summed with no sum in it, and without the final inversion
	return sum == ^crc32.Checksum(sb, crc32.MakeTable(crc32.Castagnoli))
}
