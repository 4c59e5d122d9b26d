package substrate

import (
	"crypto/sha1" //nolint:gosec // Git's object format, not a choice of ours
	"crypto/sha256"
	"hash"
	"strconv"
)

// Format is a repository's object format: the hash its objects are named by.
type Format string

// The formats that Git has.
const (
	SHA1   Format = "sha1"
	SHA256 Format = "sha256"
)

// size is the length of an object id in bytes.
func (f Format) size() int {
	if f == SHA256 {
		return sha256.Size
	}
	return sha1.Size
}

func (f Format) new() hash.Hash {
	if f == SHA256 {
		return sha256.New()
	}
	return sha1.New()
}

// objectHash starts the hash of an object whose content follows.
func (f Format) objectHash(kind string, size int64) hash.Hash {
	h := f.new()
	h.Write([]byte(kind + " " + strconv.FormatInt(size, 10) + "\x00"))
	return h
}

// isID reports whether s is a full object id in lower-case hexadecimal.
func (f Format) isID(s string) bool { return len(s) == 2*f.size() && isHex(s) }

func isHex(s string) bool {
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return s != ""
}
