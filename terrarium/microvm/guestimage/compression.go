//go:build linux

package guestimage

import (
	"bytes"
	"compress/bzip2"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
	"github.com/therootcompany/xz"
)

// The formats that kernels, modules and packages are compressed with, by the bytes they
// begin with.
var formats = []struct {
	name  string
	magic string
	open  func(io.Reader) (io.Reader, error)
}{
	{"gzip", "\x1f\x8b", func(r io.Reader) (io.Reader, error) { return gzip.NewReader(r) }},
	{"xz", "\xfd7zXZ\x00", openXZ},
	{"zstd", "\x28\xb5\x2f\xfd", openZstd},
	{"lz4", lz4Legacy, openLZ4},
	{"bzip2", "BZh", func(r io.Reader) (io.Reader, error) { return bzip2.NewReader(r), nil }},
}

// maxWindow bounds the dictionaries of xz and zstd, and so the memory that unpacking
// takes: xz -9 uses 64 MiB, zstd --ultra 128 MiB.
const maxWindow = 128 << 20

func openXZ(r io.Reader) (io.Reader, error) { return xz.NewReader(r, maxWindow) }

func openZstd(r io.Reader) (io.Reader, error) {
	// One goroutine, so that there is nothing to close.
	return zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow))
}

// lz4Legacy begins the format that the kernel's own unpacker reads: blocks of a length
// and that many bytes, each at most 8 MiB unpacked (lib/decompress_unlz4.c).
const (
	lz4Legacy = "\x02\x21\x4c\x18"
	lz4Block  = 8 << 20
)

type legacyLZ4 struct {
	in   io.Reader
	left []byte // unpacked and not read yet
	out  []byte
}

func openLZ4(r io.Reader) (io.Reader, error) {
	if _, err := io.CopyN(io.Discard, r, int64(len(lz4Legacy))); err != nil {
		return nil, err
	}
	return &legacyLZ4{in: r, out: make([]byte, lz4Block)}, nil
}

func (l *legacyLZ4) Read(p []byte) (int, error) {
	for len(l.left) == 0 {
		if err := l.block(); err != nil {
			return 0, err
		}
	}
	n := copy(p, l.left)
	l.left = l.left[n:]
	return n, nil
}

func (l *legacyLZ4) block() error {
	var length [4]byte
	if _, err := io.ReadFull(l.in, length[:]); err != nil {
		return err
	}
	n := binary.LittleEndian.Uint32(length[:])
	if string(length[:]) == lz4Legacy {
		return nil // another stream may follow
	}
	if n > uint32(lz4.CompressBlockBound(lz4Block)) {
		return fmt.Errorf("an lz4 block of %d bytes", n)
	}
	packed := make([]byte, n)
	if _, err := io.ReadFull(l.in, packed); err != nil {
		return errors.Join(err, errors.New("an lz4 block is cut short"))
	}
	size, err := lz4.UncompressBlock(packed, l.out)
	l.left = l.out[:size]
	return err
}

// errNotPacked says that data begins with nothing that is known.
var errNotPacked = errors.New("it is in no format that is read here")

// unpack unpacks data, at most limit bytes.
func unpack(data []byte, limit int64) ([]byte, error) {
	r, err := unpacker(data[:min(len(data), 8)], bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	return readAll(r, limit)
}

// unpacker chooses by the first bytes of what r reads.
func unpacker(head []byte, r io.Reader) (io.Reader, error) {
	for _, f := range formats {
		if bytes.HasPrefix(head, []byte(f.magic)) {
			opened, err := f.open(r)
			if err != nil {
				return nil, fmt.Errorf("as %s: %w", f.name, err)
			}
			return opened, nil
		}
	}
	return nil, errNotPacked
}
