package substrate

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"tendril/fault"
	"tendril/hold"
)

// Store is our own directory: the cache of base images, and scratch space that
// belongs to one open [Repository] or [Fruit] each. Several processes may use
// one store at the same time. A Store is safe for concurrent use.
type Store struct {
	dir  string
	area *hold.Area

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
	if err := os.MkdirAll(filepath.Join(dir, "base"), 0o700); err != nil {
		return nil, fault.New(fault.Unavailable, "store: %w", hold.NoSpace(err, dir)).
			WithHint("the directory %s has to be writable", dir)
	}
	if err := hold.CheckOurs(dir); err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	s := &Store{dir: dir, MaxBaseBytes: defaultMaxBaseBytes}
	if s.area, err = hold.OpenArea(filepath.Join(dir, "scratch"), filepath.Join(dir, "lock")); err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	sweepLocks := func() error { return hold.SweepLocks(filepath.Join(dir, "base", "*.lock")) }
	if err := s.area.Sweep(sweepLocks); err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	return s, nil
}

// scratch is a directory that goes when its holder closes it or dies.
type scratch struct {
	*hold.Dir
	path string
}

func (s *Store) newScratch() (*scratch, error) {
	dir, err := s.area.New()
	if err != nil {
		return nil, err
	}
	return &scratch{dir, dir.Path}, nil
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
			return nil, fmt.Errorf("our git directory: %w", hold.NoSpace(err, s.path))
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
			return nil, fmt.Errorf("our git directory: %w", hold.NoSpace(err, s.path))
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
