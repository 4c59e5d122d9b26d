//go:build linux

package guestimage

import (
	"fmt"
	"io"
)

// archive writes the format that the kernel unpacks into its first root
// (Documentation/driver-api/early-userspace/buffer-format.rst): "newc", not compressed,
// because unpacking would cost an emulated machine more than reading does. Times are
// zero and owners root, so that the same calls give the same bytes.
type archive struct {
	w     io.Writer
	inode int
	at    int64
	err   error
}

// Modes of entries.
const (
	modeDir       = 0o040000
	modeFile      = 0o100000
	modeCharacter = 0o020000
)

// entry is what an archive holds of a file besides its content.
type entry struct {
	name         string
	mode         uint32
	major, minor int // of a device
}

func (a *archive) add(e entry, content []byte) {
	a.inode++
	links := 1
	if e.mode&modeDir == modeDir && e.mode&modeFile != modeFile {
		links = 2
	}
	a.write(fmt.Appendf(nil, "070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%s\x00",
		a.inode, e.mode, 0, 0, links, 0, len(content), 0, 0, e.major, e.minor, len(e.name)+1, 0, e.name))
	a.pad()
	a.write(content)
	a.pad()
}

// close ends the archive. Another may follow.
func (a *archive) close() error {
	a.add(entry{name: "TRAILER!!!"}, nil)
	return a.err
}

func (a *archive) write(p []byte) {
	if a.err == nil {
		_, a.err = a.w.Write(p)
		a.at += int64(len(p))
	}
}

// pad fills up to a multiple of four bytes.
func (a *archive) pad() {
	a.write(make([]byte, -a.at&3))
}
