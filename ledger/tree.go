package ledger

import (
	"golang.org/x/mod/sumdb/tlog"

	"tendril/fault"
)

// Extend computes what a tree of size rows becomes when lines follow them: the hashes to
// store, which belong at the indexes from first on in the order of
// [tlog.StoredHashIndex], and the new root. stored reads hashes that earlier calls
// returned; of them it needs about as many as size has bits.
func Extend(size int64, lines [][]byte, stored tlog.HashReader) (first int64, hashes []tlog.Hash, root tlog.Hash, err error) {
	first = tlog.StoredHashCount(size)
	all := tlog.HashReaderFunc(func(indexes []int64) ([]tlog.Hash, error) {
		read := make([]tlog.Hash, len(indexes))
		var missing []int64
		for i, index := range indexes {
			if index < first {
				missing = append(missing, index)
			} else {
				read[i] = hashes[index-first]
			}
		}
		if missing == nil {
			return read, nil
		}
		old, err := stored.ReadHashes(missing)
		if err != nil {
			return nil, err
		}
		if len(old) != len(missing) {
			return nil, fault.New(fault.Internal, "%d of %d hashes of the ledger's tree are there", len(old), len(missing))
		}
		for i, index := range indexes {
			if index < first {
				read[i], old = old[0], old[1:]
			}
		}
		return read, nil
	})
	for _, line := range lines {
		added, err := tlog.StoredHashes(size, line, all)
		if err != nil {
			return 0, nil, tlog.Hash{}, err
		}
		hashes = append(hashes, added...)
		size++
	}
	root, err = tlog.TreeHash(size, all)
	return first, hashes, root, err
}

// tree is the tree over a stream of leaves: it keeps one hash for each bit that is set
// in its size, the root of a complete subtree, the largest first.
type tree struct {
	size     int64
	subtrees []tlog.Hash
}

func (t *tree) add(line []byte) {
	hash := tlog.RecordHash(line)
	for complete := t.size; complete&1 == 1; complete >>= 1 {
		last := len(t.subtrees) - 1
		hash = tlog.NodeHash(t.subtrees[last], hash)
		t.subtrees = t.subtrees[:last]
	}
	t.subtrees = append(t.subtrees, hash)
	t.size++
}

// root must not be called before the first row: there is no ledger without one.
func (t *tree) root() tlog.Hash {
	last := len(t.subtrees) - 1
	hash := t.subtrees[last]
	for i := last - 1; i >= 0; i-- {
		hash = tlog.NodeHash(t.subtrees[i], hash)
	}
	return hash
}
