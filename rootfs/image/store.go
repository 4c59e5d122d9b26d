//go:build linux

package image

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	"golang.org/x/sys/unix"

	"tendril/erofs"
	"tendril/fault"
	"tendril/hold"
	"tendril/rootfs"
)

// Options of a store. The zero value but for User is the safest setting.
type Options struct {
	User rootfs.User // the account of the Sprout, which every image gets

	// Registry carries every request to a registry, and decides what may be asked.
	// Nil: registries are not asked.
	Registry http.RoundTripper

	// MaxBytes bounds the store; zero: 64 GiB. The least recently used image that
	// nobody uses goes first; images in use may exceed it.
	MaxBytes int64

	Limits Limits
}

// Limits bound what is unpacked of one image. A zero field is its default.
type Limits struct {
	Entries int   // of all layers together, and names that those make; 1 000 000
	Bytes   int64 // of all layers together, uncompressed; 20 GiB
}

const (
	defaultMaxBytes = 64 << 30
	defaultEntries  = 1_000_000
	defaultBytes    = 20 << 30
)

// Store keeps unpacked images in a directory of ours. Several processes may use it
// at the same time. It is safe for concurrent use.
type Store struct {
	dir     string
	opts    Options
	places  rootfs.Places
	scratch *hold.Area
}

// Image is an unpacked image. It stays as it is until it is released.
type Image struct {
	Path   string // the EROFS file
	Cached bool   // it was there already
	Record
}

// Names in the directory of a store and in that of an image.
const (
	scratchDir = "scratch"
	indexDir   = "index"
	imageFile  = "root.erofs"
	recordFile = "config.json"
)

// OpenStore opens the store in dir, makes it if it is not there, and removes what a
// process that died has left in it.
func OpenStore(dir string, o Options) (*Store, error) {
	places, err := rootfs.ImagePlaces(o.User)
	if err != nil {
		return nil, err
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return nil, fmt.Errorf("image store: %w", err)
	}
	for limit, value := range map[*int64]int64{&o.MaxBytes: defaultMaxBytes, &o.Limits.Bytes: defaultBytes} {
		if *limit == 0 {
			*limit = value
		}
	}
	if o.Limits.Entries == 0 {
		o.Limits.Entries = defaultEntries
	}
	if err := os.MkdirAll(filepath.Join(dir, indexDir), 0o700); err != nil {
		return nil, fault.New(fault.Unavailable, "image store: %w", hold.NoSpace(err, dir)).
			WithHint("the directory %s has to be writable", dir)
	}
	if err := hold.CheckOurs(dir); err != nil {
		return nil, fmt.Errorf("image store: %w", err)
	}
	s := &Store{dir: dir, opts: o, places: places}
	if s.scratch, err = hold.OpenArea(filepath.Join(dir, scratchDir), filepath.Join(dir, "lock")); err != nil {
		return nil, fmt.Errorf("image store: %w", err)
	}
	if err := s.scratch.Sweep(s.sweep); err != nil {
		return nil, fmt.Errorf("image store: %w", err)
	}
	return s, nil
}

// path is the directory of an image.
func (s *Store) path(digest string) string {
	return filepath.Join(s.dir, strings.Replace(digest, ":", "-", 1))
}

// Resolve returns the digest of the image that a reference leads to now: of its
// manifest for this platform or, for an archive of docker save, which has none, of its
// configuration (Docker's image ID). [Store.Get] takes it as a reference.
func (s *Store) Resolve(ctx context.Context, ref string) (string, error) {
	r, err := parseReference(ref)
	if err != nil {
		return "", err
	}
	if kept, release, err := s.lookup(r); err != nil {
		return "", s.explain(ref, err)
	} else if release != nil {
		release()
		return kept.Digest, nil
	}
	l, done, err := s.locate(ctx, r)
	if err != nil {
		return "", s.explain(ref, err)
	}
	done()
	return l.digest, nil
}

// Get returns the image that a reference leads to, from the store or unpacked now,
// and holds it until release is called. Two processes that want the same image
// unpack it once. A digest that is in the store is not fetched again. When an image is
// refused the store is as it was.
func (s *Store) Get(ctx context.Context, ref string) (image Image, release func(), err error) {
	r, err := parseReference(ref)
	if err != nil {
		return Image{}, nil, err
	}
	if kept, release, err := s.lookup(r); err != nil {
		return Image{}, nil, s.explain(ref, err)
	} else if release != nil {
		return kept, release, nil
	}
	l, done, err := s.locate(ctx, r)
	if err != nil {
		return Image{}, nil, s.explain(ref, err)
	}
	defer done()
	if image, release, err = s.getLocated(ctx, l); err != nil {
		return Image{}, nil, s.explain(ref, err)
	}
	if err := s.remember(l.index, l.digest); err != nil {
		release()
		return Image{}, nil, err
	}
	return image, release, nil
}

// lookup opens the image that a reference means, if that is certain without asking
// anybody and the image is there. Otherwise release is nil.
func (s *Store) lookup(r reference) (kept Image, release func(), err error) {
	digest := r.digest
	if d, ok := r.registry.(name.Digest); ok {
		digest = d.DigestStr()
	}
	if digest == "" {
		return Image{}, nil, nil
	}
	for _, d := range []string{digest, s.recall(digest)} {
		if d == "" {
			continue
		}
		if kept, release, err = s.open(d); release != nil || err != nil {
			return kept, release, err
		}
	}
	if r.digest != "" {
		return Image{}, nil, fault.New(fault.NotFound, "it is not in the store").
			WithHint("name where it is to be had: " + forms)
	}
	return Image{}, nil, nil
}

// locate finds what a reference leads to. done closes what was opened for that.
func (s *Store) locate(ctx context.Context, r reference) (l *located, done func(), err error) {
	done = func() {}
	switch {
	case r.layout != "":
		l, err = layout{r.layout}.locate(ctx, r.tag)
	case r.archive != "":
		var a *archive
		if a, err = openArchive(r.archive); err != nil {
			return nil, nil, err
		}
		done = func() { a.file.Close() }
		l, err = a.locate(r.tag)
	case r.registry != nil:
		var from *registry
		if from, err = newRegistry(r.registry, s.opts.Registry); err != nil {
			return nil, nil, err
		}
		l, err = from.locate(ctx, r.registry)
	}
	if err != nil {
		done()
		return nil, nil, err
	}
	return l, done, nil
}

func (s *Store) getLocated(ctx context.Context, l *located) (Image, func(), error) {
	if image, release, err := s.open(l.digest); release != nil || err != nil {
		return image, release, err
	}
	making, err := hold.Wait(ctx, s.path(l.digest)+".lock")
	if err != nil {
		return Image{}, nil, err
	}
	defer making.Close()
	defer os.Remove(making.Name()) // who waits for it finds the image, or makes it again
	if image, release, err := s.open(l.digest); release != nil || err != nil {
		return image, release, err
	}
	if err := s.make(ctx, l); err != nil {
		return Image{}, nil, err
	}
	image, release, err := s.open(l.digest)
	if err == nil && release == nil {
		err = fault.New(fault.Unavailable, "the unpacked image vanished from the store")
	}
	if err != nil {
		return Image{}, nil, err
	}
	image.Cached = false
	if err := s.evict(); err != nil {
		release()
		return Image{}, nil, err
	}
	return image, release, nil
}

// open opens an image of the store and holds it. release is nil when there is none, or
// a damaged one, which is to be replaced.
func (s *Store) open(digest string) (Image, func(), error) {
	path := filepath.Join(s.path(digest), imageFile)
	f, err := hold.Open(path)
	if err != nil || f == nil {
		return Image{}, nil, err
	}
	record, err := readRecord(s.path(digest))
	if err != nil || record.Digest != digest || record.Form != form(s.opts.User) {
		return Image{}, nil, f.Close()
	}
	if _, err := erofs.Open(f, record.Size); err != nil {
		return Image{}, nil, f.Close()
	}
	if info, err := f.Stat(); err != nil || info.Size() != record.Size {
		return Image{}, nil, f.Close()
	}
	hold.Used(path)
	return Image{Path: path, Cached: true, Record: record}, func() { f.Close() }, nil
}

// make unpacks an image and puts it into the store.
func (s *Store) make(ctx context.Context, l *located) error {
	scratch, err := s.scratch.New()
	if err != nil {
		return err
	}
	err = s.makeIn(ctx, l, scratch.Path)
	return errors.Join(err, scratch.Close())
}

func (s *Store) makeIn(ctx context.Context, l *located, scratch string) error {
	record := Record{Form: form(s.opts.User), Digest: l.digest}
	made := filepath.Join(scratch, "image")
	if err := os.Mkdir(made, 0o700); err != nil {
		return err
	}
	if err := s.unpack(ctx, l, scratch, filepath.Join(made, imageFile), &record); err != nil {
		return err
	}
	if err := record.write(made); err != nil {
		return err
	}
	if err := syncDir(made); err != nil {
		return err
	}
	// One that is there is damaged, or made by another version of this program.
	old := s.path(l.digest)
	if err := s.discard(old); err != nil {
		return err
	}
	if err := os.Rename(made, old); err != nil {
		return err
	}
	return syncDir(s.dir)
}

// unpack flattens an image into a file and completes its record.
func (s *Store) unpack(ctx context.Context, l *located, scratch, path string, record *Record) error {
	c, err := l.open(ctx)
	if err != nil {
		return err
	}
	config, err := configuration(c.config, len(c.layers))
	if err != nil {
		return err
	}
	if err := record.describe(config); err != nil {
		return fault.New(fault.Invalid, "the configuration of the image: %w", err)
	}
	spooled, err := os.OpenFile(filepath.Join(scratch, "content"), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer spooled.Close()
	f := &flattener{
		headers: s.opts.Limits.Entries,
		tree:    newTree(s.opts.Limits.Entries, clampTime(config.Created.Time)),
		spool:   newSpool(spooled, s.opts.Limits.Bytes),
		stream:  s.opts.Limits.Bytes,
	}
	for i, layer := range c.layers {
		if err := f.apply(ctx, layer, config.RootFS.DiffIDs[i].String()); err != nil {
			return err
		}
	}
	if err := f.addPlaces(s.places); err != nil {
		return err
	}
	f.out.Env = record.LeftOut.Env
	record.LeftOut = f.out
	out, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer out.Close()
	if record.Entries, record.Size, err = f.write(ctx, out); err != nil {
		return err
	}
	return out.Sync()
}

// explain makes a fault of what is wrong with the whole of an image, with its source
// or with the disk.
func (s *Store) explain(ref string, err error) error {
	var known *fault.Error
	switch {
	case errors.Is(err, errMany):
		err = fault.New(fault.Invalid, "it has more than %d entries", s.opts.Limits.Entries)
	case errors.Is(err, errLong):
		err = fault.New(fault.Invalid, "the ways to its entries have more than %d steps", stepsEach*s.opts.Limits.Entries)
	case errors.Is(err, errLarge):
		err = fault.New(fault.Invalid, "it has more than %d bytes of content", s.opts.Limits.Bytes)
	case errors.As(err, &known), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
	case errors.Is(err, errSource):
		err = fault.New(fault.Unavailable, "%w", err)
	default:
		err = hold.NoSpace(err, s.dir)
	}
	return fmt.Errorf("image %.300q: %w", ref, err)
}

// discard removes the directory of an image that is of no use, unless somebody uses it.
func (s *Store) discard(dir string) error {
	gone, err := hold.Remove(filepath.Join(dir, imageFile), s.remove)
	if err == nil && !gone {
		err = fault.New(fault.Unavailable, "the image in %s was unpacked by another version of this program, which uses it now", dir).
			WithHint("end the runs that use it first")
	}
	if err != nil {
		return err
	}
	return os.RemoveAll(dir) // without an image file it is nobody's
}

// remove removes the image that a file belongs to: out of the place where it would be
// taken for one at once, and then from the disk.
func (s *Store) remove(file string) error {
	scratch, err := s.scratch.New()
	if err != nil {
		return err
	}
	err = os.Rename(filepath.Dir(file), filepath.Join(scratch.Path, "image"))
	return errors.Join(err, scratch.Close())
}

func syncDir(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(unix.Fsync(int(f.Fd())), f.Close())
}
