//go:build linux

package image

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
)

// sparse writes a file and leaves out blocks of zeros, which are holes then. The
// file is as long as what was written once settle was called.
type sparse struct {
	*os.File
	end int64
}

const block = 4096

var zeros [block]byte

func (s *sparse) WriteAt(p []byte, off int64) (int, error) {
	s.end = max(s.end, off+int64(len(p)))
	for done := 0; done < len(p); {
		// Runs of blocks that hold something are written as one.
		n := 0
		for done+n < len(p) {
			size := min(block, len(p)-done-n)
			if bytes.Equal(p[done+n:done+n+size], zeros[:size]) {
				break
			}
			n += size
		}
		if n == 0 {
			done += min(block, len(p)-done)
			continue
		}
		if _, err := s.File.WriteAt(p[done:done+n], off+int64(done)); err != nil {
			return done, err
		}
		done += n
	}
	return len(p), nil
}

func (s *sparse) settle() error {
	if s.end == 0 {
		return nil // nothing was written, so nothing was left out
	}
	return s.Truncate(s.end)
}

// spool keeps the content of files one after the other, in one file, so that
// no name of an image becomes a name on the host.
type spool struct {
	file *sparse
	left int64 // bytes that files may still have
	buf  []byte
}

// Errors of the spool, which are not about the entry that was being read.
var (
	errSpool = errors.New("the content of the image cannot be kept")
	errLarge = errors.New("the image has too much content")
)

func newSpool(f *os.File, limit int64) *spool {
	return &spool{file: &sparse{File: f}, left: limit, buf: make([]byte, 256<<10)}
}

// add takes everything that r yields.
func (s *spool) add(r io.Reader) (extent, error) {
	e := extent{offset: s.file.end}
	var err error
	e.size, err = io.CopyBuffer(s, r, s.buf)
	return e, err
}

// Write appends to the spool.
func (s *spool) Write(p []byte) (int, error) {
	if s.left -= int64(len(p)); s.left < 0 {
		return 0, errLarge
	}
	n, err := s.file.WriteAt(p, s.file.end)
	if err != nil {
		err = fmt.Errorf("%w: %w", errSpool, err)
	}
	return n, err
}

// open reads the content of a file again.
func (s *spool) open(e extent) io.Reader {
	if e.text != nil {
		return bytes.NewReader(e.text)
	}
	return io.NewSectionReader(s.file, e.offset, e.size)
}
