package state

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"tendril/fault"
	"tendril/ledger"
)

const (
	// keyFile lies beside the database and holds the key that signs the checkpoints.
	// It is not in the database, so that a copy of that gives nobody the key.
	keyFile = "ledger.key"
	// largestKey is far more bytes than such a file has.
	largestKey = 1 << 10
)

// errNoKey means that there is no such file.
var errNoKey = errors.New("there is no signing key")

func readOrMakeKey(path string) (ledger.Key, error) {
	key, err := readKey(path)
	if errors.Is(err, errNoKey) {
		return makeKey(path)
	}
	return key, err
}

// readKey refuses a key that others can read: they could sign in the site's name.
func readKey(path string) (ledger.Key, error) {
	// A link is not followed, and a FIFO does not hold the call up.
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return ledger.Key{}, errNoKey
	case errors.Is(err, syscall.ELOOP):
		return ledger.Key{}, fault.New(fault.Unavailable, "%s is a symbolic link", path).WithHint("put the key itself there")
	case err != nil:
		return ledger.Key{}, unavailable("read "+path, path, err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return ledger.Key{}, unavailable("look at "+path, path, err)
	}
	if err := checkFile(path, info); err != nil {
		return ledger.Key{}, err
	}
	if info.Mode().Perm()&0o077 != 0 {
		return ledger.Key{}, fault.New(fault.Unavailable, "other accounts can read %s (mode %04o), and could sign what the ledger never said", path, info.Mode().Perm()).
			WithHint("chmod 0600 %s; if somebody has read it, treat checkpoints from then on as worth nothing and begin a new ledger", path)
	}
	secret, err := io.ReadAll(io.LimitReader(file, largestKey))
	if err != nil {
		return ledger.Key{}, unavailable("read "+path, path, err)
	}
	key, err := ledger.ParseKey(strings.TrimSuffix(string(secret), "\n"))
	if err != nil {
		return ledger.Key{}, fault.New(fault.Unavailable, "%s: %w", path, err).WithHint("put the file back from a copy")
	}
	return key, nil
}

// makeKey makes the key of a site and its origin, which is random: two sites never sign
// in one name. The caller holds the database's write lock.
func makeKey(path string) (ledger.Key, error) {
	var site [16]byte
	rand.Read(site[:]) // never fails: crypto/rand ends the process instead
	key, secret, err := ledger.NewKey("tendril/" + hex.EncodeToString(site[:]))
	if err != nil {
		return ledger.Key{}, err
	}
	if err := writeSecret(path, secret+"\n"); err != nil {
		return ledger.Key{}, unavailable("create "+path, path, err)
	}
	return key, nil
}

// writeSecret makes a file that is there as a whole and on disk, or not at all.
func writeSecret(path, secret string) error {
	partial := path + ".new"
	// One is left behind by a process that was killed here; nobody has used its key.
	if err := os.Remove(partial); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	file, err := os.OpenFile(partial, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = file.WriteString(secret)
	if err == nil {
		err = file.Sync()
	}
	if closed := file.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = os.Rename(partial, path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(partial))
	}
	return syncDir(filepath.Dir(path))
}

func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Sync()
}
