package substrate

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"tendril/fault"
)

// Store is our own directory: the cache of base images, and scratch space that
// belongs to one open [Repository] or [Fruit] each. Several processes may use
// one store at the same time. A Store is safe for concurrent use.
type Store struct {
	dir string

	// MaxBaseBytes bounds the cache of base images. The least recently used
	// image that nobody uses goes first; images in use may exceed the bound.
	// Set it before the first use.
	MaxBaseBytes int64
}

const defaultMaxBaseBytes = 32 << 30

// OpenStore opens the store in dir, makes it if it is not there, and removes
// what a process that died has left in it. dir must be ours alone.
func OpenStore(dir string) (*Store, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	for _, d := range []string{dir, filepath.Join(dir, "base"), filepath.Join(dir, "scratch")} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return nil, fault.New(fault.Unavailable, "store: %w", noSpace(err, dir)).
				WithHint("the directory %s has to be writable", dir)
		}
	}
	var st unix.Stat_t
	if err := unix.Lstat(dir, &st); err != nil {
		return nil, fmt.Errorf("store: %w", &os.PathError{Op: "lstat", Path: dir, Err: err})
	}
	if int(st.Uid) != os.Geteuid() || st.Mode&0o022 != 0 {
		return nil, fault.New(fault.Unavailable, "store: %s is writable by others or belongs to uid %d", dir, st.Uid).
			WithHint("chown it to uid %d and chmod it to 0700", os.Geteuid())
	}
	s := &Store{dir: dir, MaxBaseBytes: defaultMaxBaseBytes}
	return s, s.sweep()
}

// lock takes a flock on a file, making it. how is one of unix.LOCK_*. It
// returns nil and no error when LOCK_NB is set and somebody else holds it.
func lock(path string, how int) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock: %w", err)
	}
	for {
		err = unix.Flock(int(f.Fd()), how)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err == nil {
		return f, nil
	}
	f.Close()
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil, nil
	}
	return nil, fmt.Errorf("lock %s: %w", path, err)
}

// scratch is a directory that goes when its holder closes it or dies.
type scratch struct {
	path string
	held *os.File
}

func (s *Store) lockPath() string { return filepath.Join(s.dir, "lock") }

// newScratch makes a scratch directory. A sweep cannot meet one that is not
// locked yet, because both hold the store's lock meanwhile.
func (s *Store) newScratch() (*scratch, error) {
	l, err := lock(s.lockPath(), unix.LOCK_SH)
	if err != nil {
		return nil, err
	}
	defer l.Close()
	path, err := os.MkdirTemp(filepath.Join(s.dir, "scratch"), "")
	if err != nil {
		return nil, fmt.Errorf("scratch directory: %w", noSpace(err, s.dir))
	}
	held, err := lock(filepath.Join(path, "lock"), unix.LOCK_EX|unix.LOCK_NB)
	if err == nil && held == nil {
		err = fmt.Errorf("scratch directory %s: somebody else locked it", path)
	}
	if err != nil {
		return nil, errors.Join(err, removeAll(path))
	}
	return &scratch{path, held}, nil
}

func (s *scratch) Close() error {
	err := removeAll(s.path)
	return errors.Join(err, s.held.Close())
}

// sweep removes what dead processes have left: scratch directories, which hold
// half-made images too, and locks.
func (s *Store) sweep() error {
	l, err := lock(s.lockPath(), unix.LOCK_EX)
	if err != nil {
		return err
	}
	defer l.Close()
	dirs, err := os.ReadDir(filepath.Join(s.dir, "scratch"))
	if err != nil {
		return fmt.Errorf("sweep the store: %w", err)
	}
	for _, d := range dirs {
		path := filepath.Join(s.dir, "scratch", d.Name())
		held, err := lock(filepath.Join(path, "lock"), unix.LOCK_EX|unix.LOCK_NB)
		if err != nil {
			return err
		}
		if held == nil {
			continue // its owner lives
		}
		err = removeAll(path)
		held.Close()
		if err != nil {
			return err
		}
	}
	return s.sweepImageLocks()
}

// sweepImageLocks removes the locks of images that nobody makes any more.
func (s *Store) sweepImageLocks() error {
	locks, err := filepath.Glob(filepath.Join(s.dir, "base", "*.lock"))
	if err != nil {
		return fmt.Errorf("sweep the store: %w", err)
	}
	for _, path := range locks {
		held, err := lock(path, unix.LOCK_EX|unix.LOCK_NB)
		if err != nil {
			return err
		}
		if held == nil {
			continue // its owner lives
		}
		err = os.Remove(path) // who waits for it finds the image, or makes it again
		held.Close()
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("sweep the store: %w", err)
		}
	}
	return nil
}

// newGitDir makes a bare Git directory below the scratch directory. It reads
// the objects of the given object directories besides its own.
func (s *scratch) newGitDir(name string, format Format, shallow []byte, objects ...string) (*gitDir, error) {
	dir := filepath.Join(s.path, name)
	work := filepath.Join(s.path, name+".work")
	for _, d := range []string{work, "objects/info", "objects/pack", "refs/heads", "info"} {
		if !filepath.IsAbs(d) {
			d = filepath.Join(dir, d)
		}
		if err := os.MkdirAll(d, 0o700); err != nil {
			return nil, fmt.Errorf("our git directory: %w", noSpace(err, s.path))
		}
	}
	files := map[string]string{
		"HEAD":         "ref: refs/heads/none\n",
		"config":       ourConfig(format),
		"info/exclude": "",
	}
	if len(objects) > 0 {
		var b strings.Builder
		for _, o := range objects {
			b.WriteString(quoteAlternate(o) + "\n")
		}
		files["objects/info/alternates"] = b.String()
	}
	if len(shallow) > 0 {
		files["shallow"] = string(shallow)
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			return nil, fmt.Errorf("our git directory: %w", noSpace(err, s.path))
		}
	}
	return &gitDir{path: dir, work: work, env: gitEnv(dir, work), borrows: objects}, nil
}

// ourConfig is the configuration of our own Git directories. Caches that the
// caller's objects may carry (commit graph, multi-pack index, bitmaps) are
// claims about objects, and are not believed.
func ourConfig(format Format) string {
	config := `	bare = true
	hooksPath = /dev/null
	attributesFile = /dev/null
	excludesFile = /dev/null
	fsmonitor = false
	untrackedCache = false
	commitGraph = false
	multiPackIndex = false
	logAllRefUpdates = false
	protectHFS = true
	protectNTFS = true
	fileMode = true
	symlinks = true
	quotePath = true
[pack]
	useBitmaps = false
	writeReverseIndex = false
[gc]
	auto = 0
[maintenance]
	auto = false
[transfer]
	fsckObjects = true
[protocol]
	allow = never
[submodule]
	recurse = false
`
	if format == SHA256 {
		return "[core]\n\trepositoryFormatVersion = 1\n" + config + "[extensions]\n\tobjectFormat = sha256\n"
	}
	return "[core]\n\trepositoryFormatVersion = 0\n" + config
}

// quoteAlternate writes a path for objects/info/alternates, where a line in
// double quotes is read like a C string.
func quoteAlternate(path string) string {
	var b strings.Builder
	b.WriteByte('"')
	for i := range len(path) {
		switch c := path[i]; {
		case c == '"' || c == '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		case c < 0x20 || c >= 0x7f:
			fmt.Fprintf(&b, `\%03o`, c)
		default:
			b.WriteByte(c)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// Open opens the repository that path is in. See [Repository]. Close it.
func (s *Store) Open(ctx context.Context, path string) (*Repository, error) {
	r, err := discover(ctx, path)
	if err != nil {
		return nil, err
	}
	r.store = s
	if err := r.prepare(ctx); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}
