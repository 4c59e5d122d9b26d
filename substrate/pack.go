package substrate

import (
	"bufio"
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"os"

	"tendril/fault"
)

// packType is an object's type in a pack, as in gitformat-pack(5).
type packType byte

const (
	packCommit packType = 1
	packTree   packType = 2
	packBlob   packType = 3
)

func (t packType) String() string {
	return map[packType]string{packCommit: "commit", packTree: "tree", packBlob: "blob"}[t]
}

// maxBuffered is up to what size an object is looked at before it is written.
const maxBuffered = 1 << 20

// spool collects objects in the form that a pack has them, in a file of ours.
// What is in the pack in the end is decided later, so the pack is written from
// the spool: its header holds the number of objects, and its checksum covers
// the header.
type spool struct {
	format Format
	file   *os.File
	out    *bufio.Writer
	size   int64
	at     map[string]extent
	order  []string
	zip    *zlib.Writer
}

type extent struct{ off, len int64 }

func newSpool(path string, format Format) (*spool, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, fmt.Errorf("spool: %w", err)
	}
	zip, err := zlib.NewWriterLevel(io.Discard, zlib.BestSpeed)
	if err != nil {
		return nil, err
	}
	return &spool{format: format, file: f, out: bufio.NewWriterSize(f, 256<<10), at: map[string]extent{}, zip: zip}, nil
}

func (s *spool) Close() error { return s.file.Close() }

// add takes an object of exactly size bytes and returns its id. An object whose
// id is known already is not kept.
func (s *spool) add(kind packType, size int64, content io.Reader, known func(id string) bool) (string, error) {
	content = io.LimitReader(content, size)
	h := s.format.objectHash(kind.String(), size)
	if size <= maxBuffered {
		data := make([]byte, size)
		if _, err := io.ReadFull(content, data); err != nil {
			return "", short(size, err)
		}
		h.Write(data)
		id := hex.EncodeToString(h.Sum(nil))
		if _, ok := s.at[id]; ok || known(id) {
			return id, nil
		}
		return id, s.write(id, kind, size, bytes.NewReader(data))
	}
	// Too large to hold: it is written first, and taken back if it is known.
	before := s.size
	if err := s.write("", kind, size, io.TeeReader(content, h)); err != nil {
		return "", err
	}
	id := hex.EncodeToString(h.Sum(nil))
	if _, ok := s.at[id]; ok || known(id) {
		if err := s.rewind(before); err != nil {
			return "", err
		}
		return id, nil
	}
	s.keep(id, before)
	return id, nil
}

func short(size int64, err error) error {
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return fault.New(fault.Invalid, "the content has fewer than the %d bytes it was said to have", size)
	}
	return err
}

func (s *spool) keep(id string, off int64) {
	s.at[id] = extent{off, s.size - off}
	s.order = append(s.order, id)
}

// write appends one object. With an id it is kept.
func (s *spool) write(id string, kind packType, size int64, content io.Reader) error {
	before := s.size
	out := &countingWriter{w: s.out}
	// Type and size: four bits of the size in the first byte, then seven each.
	head := byte(kind)<<4 | byte(size&0x0f)
	rest := uint64(size) >> 4
	for rest > 0 {
		if _, err := out.Write([]byte{head | 0x80}); err != nil {
			return err
		}
		head = byte(rest & 0x7f)
		rest >>= 7
	}
	if _, err := out.Write([]byte{head}); err != nil {
		return err
	}
	s.zip.Reset(out)
	n, err := io.Copy(s.zip, content)
	if err != nil {
		return err
	}
	if n != size {
		return short(size, io.EOF)
	}
	if err := s.zip.Close(); err != nil {
		return err
	}
	s.size += out.n
	if id != "" {
		s.keep(id, before)
	}
	return nil
}

func (s *spool) rewind(to int64) error {
	if err := s.out.Flush(); err != nil {
		return err
	}
	if err := s.file.Truncate(to); err != nil {
		return err
	}
	_, err := s.file.Seek(to, io.SeekStart)
	s.size = to
	return err
}

// writePack writes a pack of the kept objects that are used, and returns its
// checksum, which is also its name.
func (s *spool) writePack(w io.Writer, used map[string]bool) (string, error) {
	if err := s.out.Flush(); err != nil {
		return "", err
	}
	var wanted []string
	for _, id := range s.order {
		if used[id] {
			wanted = append(wanted, id)
		}
	}
	h := s.format.new()
	buffered := bufio.NewWriterSize(w, 256<<10)
	out := io.MultiWriter(buffered, h)
	header := binary.BigEndian.AppendUint32([]byte("PACK\x00\x00\x00\x02"), uint32(len(wanted)))
	if _, err := out.Write(header); err != nil {
		return "", err
	}
	for _, id := range wanted {
		e := s.at[id]
		if _, err := io.Copy(out, io.NewSectionReader(s.file, e.off, e.len)); err != nil {
			return "", err
		}
	}
	sum := h.Sum(nil)
	if _, err := buffered.Write(sum); err != nil {
		return "", err
	}
	return hex.EncodeToString(sum), buffered.Flush()
}

type countingWriter struct {
	w io.Writer
	n int64
}

func (c *countingWriter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}
