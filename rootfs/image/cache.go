//go:build linux

package image

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"tendril/hold"
)

// images are the image files of the store.
func (s *Store) images() ([]hold.Kept, error) {
	files, err := filepath.Glob(filepath.Join(s.dir, "sha256-*", imageFile))
	if err != nil {
		return nil, err
	}
	var kept []hold.Kept
	for _, path := range files {
		if info, err := os.Stat(path); err == nil {
			kept = append(kept, hold.Kept{Path: path, Size: info.Size(), Used: info.ModTime()})
		}
	}
	return kept, nil
}

// evict brings the store within its bound, as far as nobody uses what is in it.
func (s *Store) evict() error {
	kept, err := s.images()
	if err == nil {
		err = hold.Evict(kept, s.opts.MaxBytes, s.remove)
	}
	if err != nil {
		return fmt.Errorf("evict images: %w", err)
	}
	return nil
}

// sweep removes locks that nobody holds and what is known of indexes whose image is gone.
func (s *Store) sweep() error {
	if err := hold.SweepLocks(filepath.Join(s.dir, "sha256-*.lock")); err != nil {
		return err
	}
	known, err := os.ReadDir(filepath.Join(s.dir, indexDir))
	if err != nil {
		return err
	}
	for _, e := range known {
		digest := s.recall("sha256:" + e.Name())
		if _, err := os.Stat(s.path(digest)); digest != "" && err == nil {
			continue
		}
		if err := os.Remove(filepath.Join(s.dir, indexDir, e.Name())); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}

// An index is the same for ever, so which image of it is this platform's is kept: a
// reference with the digest of an index needs no registry either.

func (s *Store) indexPath(index string) string {
	return filepath.Join(s.dir, indexDir, strings.TrimPrefix(index, "sha256:"))
}

// recall returns the image that an index led to; "" if that is not known.
func (s *Store) recall(index string) string {
	if !isDigest(index) {
		return ""
	}
	digest, err := os.Readlink(s.indexPath(index))
	if err != nil || !isDigest(digest) {
		return ""
	}
	return digest
}

// remember keeps what an index led to. A link of that name and target is made at once or
// not at all, and leads nowhere.
func (s *Store) remember(index, digest string) error {
	if index == "" {
		return nil
	}
	if err := os.Symlink(digest, s.indexPath(index)); err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("image store: %w", hold.NoSpace(err, s.dir))
	}
	return nil
}
