package substrate

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"tendril/erofs"
	"tendril/fault"
	"tendril/hold"
)

// Owner is who the entries of a base image belong to, inside.
type Owner struct{ UID, GID uint32 }

// Base is the image of a commit: an EROFS file that holds the commit's tree and
// a .git with what is reachable from it. It stays until Release.
type Base struct {
	Image  string // path
	Commit Commit
	Cached bool // it was there already

	held *os.File
}

// Release gives the image back to the cache.
func (b *Base) Release() error { return b.held.Close() }

// imageVersion is part of an image's key. It changes with what is in one.
const imageVersion = "1"

// Base returns the base image of a commit, from the cache or made now. progress,
// when not nil, is called with the entries done and in total. Two processes that
// want the same image make it once.
func (r *Repository) Base(ctx context.Context, c Commit, owner Owner, progress func(done, total int)) (*Base, error) {
	path := filepath.Join(r.store.dir, "base", r.imageKey(c, owner)+".erofs")
	if b, err := openBase(path, c); b != nil || err != nil {
		return b, err
	}
	making, err := hold.Wait(ctx, path+".lock")
	if err != nil {
		return nil, hold.NoSpace(err, path)
	}
	defer making.Close()
	defer os.Remove(path + ".lock") // who waits for it finds the image, or makes it again
	if b, err := openBase(path, c); b != nil || err != nil {
		return b, err
	}
	made := filepath.Join(r.scratch.path, "image")
	defer os.Remove(made)
	if err := r.writeImage(ctx, made, c, owner, progress); err != nil {
		return nil, r.explain(hold.NoSpace(err, r.store.dir), c)
	}
	if err := os.Rename(made, path); err != nil {
		return nil, fmt.Errorf("base image: %w", hold.NoSpace(err, r.store.dir))
	}
	b, err := openBase(path, c)
	if err == nil && b == nil {
		err = fault.New(fault.Unavailable, "the base image %s vanished", path)
	}
	if err != nil {
		return nil, err
	}
	b.Cached = false
	return b, r.store.evict()
}

// imageKey is a digest of everything that an image's content depends on.
func (r *Repository) imageKey(c Commit, owner Owner) string {
	h := sha256.New()
	fmt.Fprintf(h, "%s\n%s\n%s\n%q\n%d:%d\n%x\n", imageVersion, r.Format, c.ID, branchInside(c), owner.UID, owner.GID, sha256.Sum256(r.shallow))
	return hex.EncodeToString(h.Sum(nil))
}

// branchInside is the one branch that .git inside has.
func branchInside(c Commit) string {
	if c.Branch == "" {
		return "work"
	}
	return c.Branch
}

// openBase opens a cached image and holds it against eviction. It returns nil
// when there is none, or a damaged one, which is to be replaced.
func openBase(path string, c Commit) (*Base, error) {
	f, err := hold.Open(path)
	if err != nil {
		return nil, fmt.Errorf("base image: %w", err)
	}
	if f == nil {
		return nil, nil
	}
	info, err := f.Stat()
	if err == nil {
		// What a full disk, a crash or a careless hand leaves behind has not its whole
		// superblock or size. The content is not read; that would cost what the cache saves.
		_, err = erofs.Open(f, info.Size())
	}
	if err != nil {
		return nil, f.Close()
	}
	hold.Used(path)
	return &Base{Image: path, Commit: c, Cached: true, held: f}, nil
}

// explain says what it means that an object of the base is missing.
func (r *Repository) explain(err error, c Commit) error {
	var failure *gitFailure
	if !errors.Is(err, errMissing) && (!errors.As(err, &failure) || errors.Is(err, unix.ENOSPC)) {
		return err
	}
	if pack, openErr := r.common.open("objects/pack", unix.O_RDONLY|unix.O_DIRECTORY, 0); openErr == nil {
		defer pack.Close()
		for {
			names, readErr := pack.Readdirnames(1024)
			if slices.ContainsFunc(names, func(n string) bool { return strings.HasSuffix(n, ".promisor") }) {
				return fault.New(fault.Invalid, "%s is a partial clone, and not everything of commit %s is in it: %w", r.where(), c.ID, err).
					WithHint("work on a full clone, made without --filter; missing objects are never fetched")
			}
			if readErr != nil {
				break
			}
		}
	}
	return fault.New(fault.Invalid, "not everything of commit %s is in %s: %w", c.ID, r.where(), err).
		WithHint("run git fsck in the repository")
}

// evict removes the least recently used images that nobody holds until the
// cache is within its bound.
func (s *Store) evict() error {
	dir := filepath.Join(s.dir, "base")
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("evict base images: %w", err)
	}
	var images []hold.Kept
	for _, e := range entries {
		if info, err := e.Info(); err == nil && strings.HasSuffix(e.Name(), ".erofs") {
			images = append(images, hold.Kept{Path: filepath.Join(dir, e.Name()), Size: info.Size(), Used: info.ModTime()})
		}
	}
	return hold.Evict(images, s.MaxBaseBytes, os.Remove)
}

// counting calls progress for each entry that is done.
type counting struct {
	done, total int
	progress    func(done, total int)
}

func (c *counting) step() {
	c.done++
	if c.progress != nil {
		c.progress(c.done, c.total)
	}
}
