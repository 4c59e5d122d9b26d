package ledger

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"math/bits"
	"strconv"
	"testing"

	"golang.org/x/mod/sumdb/tlog"
	"pgregory.net/rapid"
)

// definition is the root as RFC 6962, section 2.1, defines it.
func definition(lines [][]byte) tlog.Hash {
	if len(lines) == 1 {
		return sha256.Sum256(append([]byte{0}, lines[0]...))
	}
	half := 1
	for half*2 < len(lines) {
		half *= 2
	}
	left, right := definition(lines[:half]), definition(lines[half:])
	return sha256.Sum256(bytes.Join([][]byte{{1}, left[:], right[:]}, nil))
}

func TestBothTreesAreThatOfRFC6962(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var stored []tlog.Hash
		read := 0
		reader := tlog.HashReaderFunc(func(indexes []int64) ([]tlog.Hash, error) {
			hashes := make([]tlog.Hash, len(indexes))
			for i, index := range indexes {
				hashes[i] = stored[index] // beyond the end it panics
			}
			read += len(indexes)
			return hashes, nil
		})
		var lines [][]byte
		var stream tree
		for _, count := range rapid.SliceOfN(rapid.IntRange(1, 40), 1, 8).Draw(t, "batches") {
			size := int64(len(lines))
			var batch [][]byte
			for range count {
				batch = append(batch, []byte(strconv.Itoa(len(lines)+len(batch))+rapid.String().Draw(t, "line")))
			}
			read = 0
			first, hashes, root, err := Extend(size, batch, reader)
			if err != nil || first != int64(len(stored)) {
				t.Fatalf("at %d hashes, not %d: %v", first, len(stored), err)
			}
			if most := (count + 1) * (bits.Len64(uint64(size)) + 1); read > most {
				t.Fatalf("%d hashes were read for %d rows after %d, more than %d", read, count, size, most)
			}
			stored, lines = append(stored, hashes...), append(lines, batch...)
			if int64(len(stored)) != tlog.StoredHashCount(int64(len(lines))) {
				t.Fatalf("%d hashes for %d rows", len(stored), len(lines))
			}
			for _, line := range batch {
				stream.add(line)
			}
			want := definition(lines)
			if root != want || stream.root() != want {
				t.Fatalf("roots of %d rows: %s stored, %s streamed, want %s", len(lines), root, stream.root(), want)
			}
			if len(stream.subtrees) != bits.OnesCount(uint(len(lines))) {
				t.Fatalf("the stream keeps %d hashes of %d rows", len(stream.subtrees), len(lines))
			}
		}
	})
}

func TestExtendReportsWhatCannotBeRead(t *testing.T) {
	gone := errors.New("gone")
	for name, reader := range map[string]tlog.HashReaderFunc{
		"an error":   func([]int64) ([]tlog.Hash, error) { return nil, gone },
		"too little": func([]int64) ([]tlog.Hash, error) { return nil, nil },
	} {
		if _, _, _, err := Extend(5, [][]byte{[]byte("x")}, reader); err == nil || (name == "an error" && !errors.Is(err, gone)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
