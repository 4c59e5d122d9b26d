package stoma

import (
	"bufio"
	"io"
	"strings"
)

// Kind is what a record says about its path.
type Kind string

// The kinds of a record.
const (
	File    Kind = "file"    // a regular file; Content is its bytes
	Exec    Kind = "exec"    // a regular file that its owner may execute
	Symlink Kind = "symlink" // Content is the target
	Delete  Kind = "delete"  // what was at the path in the base, all beneath it included, is gone
	Dir     Kind = "dir"     // a directory where the base has none
	Skip    Kind = "skip"    // something is here that stays behind; only the first hundred are named
)

// MaxPath bounds the path of a record, in bytes.
const MaxPath = 4096

// maxTarget bounds the target of a symbolic link: the kernel's PATH_MAX.
const maxTarget = 4096

// Record is one entry that differs from the base. Path is relative to the
// workspace, any bytes but NUL. A record replaces whatever the base has at its
// path. Content is valid until the sink returns; what the sink does not read is
// skipped.
type Record struct {
	Kind    Kind
	Path    []byte
	Size    int64 // of Content
	Content io.Reader
}

// Summary ends a collection. Counts are the guest's word, but for Records,
// which the host counted itself.
type Summary struct {
	Records int // sent
	Ignored int // new entries left behind because an ignore rule matches them; a directory counts once
	Skipped int // entries that cannot be in a tree: .git, sockets, FIFOs, devices, paths that are too long or too deep
}

const summaryKind = "end"

// maxRecord bounds the fields of a record.
const maxRecord = MaxPath + 64

// RecordMessage is the message before a record's content.
func RecordMessage(kind Kind, path string, size int64) []byte {
	b := AppendBytes(nil, kind)
	b = AppendBytes(b, path)
	return AppendUint(b, uint64(size))
}

// SummaryMessage is the last message of a collection.
func SummaryMessage(s Summary) []byte {
	b := AppendBytes(nil, summaryKind)
	b = AppendUint(b, uint64(s.Records))
	b = AppendUint(b, uint64(s.Ignored))
	return AppendUint(b, uint64(s.Skipped))
}

// readRecords reads a whole collection. Without the closing summary, or with
// anything after it, it is an error: a truncated answer is never a success.
func readRecords(r io.Reader, sink func(Record) error) (Summary, error) {
	br := bufio.NewReaderSize(r, MaxPayload)
	for n := 0; ; n++ {
		f, err := ReadMessage(br, maxRecord)
		if err == io.EOF {
			err = violation("collection without a summary")
		}
		if err != nil {
			return Summary{}, err
		}
		kind := f.Text()
		if kind == summaryKind {
			return readSummary(f, br, n)
		}
		rec := Record{Kind: Kind(kind), Path: f.Bytes(), Size: int64(f.UintMax(1<<63 - 1))}
		if f.End() != nil || !wellFormed(rec) {
			return Summary{}, violation("malformed record")
		}
		content := &io.LimitedReader{R: br, N: rec.Size}
		rec.Content = &exactReader{content}
		if err := sink(rec); err != nil {
			return Summary{}, err
		}
		if _, err := io.Copy(io.Discard, rec.Content); err != nil {
			return Summary{}, err
		}
	}
}

func readSummary(f *Fields, br *bufio.Reader, n int) (Summary, error) {
	const most = 1<<31 - 1
	s := Summary{Records: int(f.UintMax(most)), Ignored: int(f.UintMax(most)), Skipped: int(f.UintMax(most))}
	if f.End() != nil {
		return Summary{}, violation("malformed summary")
	}
	if s.Records != n {
		return Summary{}, violation("summary with a wrong count")
	}
	if err := expectEnd(br); err != nil {
		return Summary{}, err
	}
	return s, nil
}

// exactReader is an io.LimitedReader for which an early end is an error.
type exactReader struct{ *io.LimitedReader }

func (r *exactReader) Read(p []byte) (int, error) {
	n, err := r.LimitedReader.Read(p)
	if err == io.EOF && r.N > 0 {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// wellFormed is what every record keeps to. It is not the check that makes a
// path safe to use: that is the importer's.
func wellFormed(r Record) bool {
	switch r.Kind {
	case File, Exec:
	case Symlink:
		if r.Size == 0 || r.Size > maxTarget {
			return false
		}
	case Delete, Dir, Skip:
		if r.Size != 0 {
			return false
		}
	default:
		return false
	}
	path := string(r.Path)
	if path == "" || len(path) > MaxPath || strings.IndexByte(path, 0) >= 0 {
		return false
	}
	for part := range strings.SplitSeq(path, "/") {
		if part == "" || part == "." || part == ".." {
			return false
		}
	}
	return true
}
