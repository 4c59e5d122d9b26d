//go:build linux

package image

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"tendril/rootfs"
)

// WriteEmpty writes a root file system that holds nothing but the places which every one
// has, to a new file, and returns its digest: what a wall needs that can show nothing of
// this host when nothing is to be run in it but the Stoma.
func WriteEmpty(ctx context.Context, user rootfs.User, path string) (digest string, err error) {
	places, err := rootfs.ImagePlaces(user)
	if err != nil {
		return "", err
	}
	content, err := os.OpenFile(path+".content", os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return "", fmt.Errorf("making an empty root file system: %w", err)
	}
	defer func() { err = errors.Join(err, content.Close(), os.Remove(content.Name())) }()
	f := &flattener{tree: newTree(defaultEntries, time.Unix(0, 0)), spool: newSpool(content, defaultBytes)}
	if err := f.addPlaces(places); err != nil {
		return "", err
	}
	if _, _, err := f.write(ctx, path); err != nil {
		return "", fmt.Errorf("making an empty root file system: %w", err)
	}
	written, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer written.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, written); err != nil {
		return "", err
	}
	return fmt.Sprintf("sha256:%x", sum.Sum(nil)), nil
}
