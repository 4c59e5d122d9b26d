//go:build linux

package image

import (
	"context"
	"crypto/sha256"
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
	f := &flattener{tree: newTree(defaultEntries, time.Unix(0, 0)), spool: newSpool(nil, 0)}
	if err := f.addPlaces(places); err != nil {
		return "", err
	}
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return "", fmt.Errorf("making an empty root file system: %w", err)
	}
	defer file.Close()
	_, size, err := f.write(ctx, file)
	if err != nil {
		return "", fmt.Errorf("making an empty root file system: %w", err)
	}
	sum := sha256.New()
	if _, err := io.Copy(sum, io.NewSectionReader(file, 0, size)); err != nil {
		return "", fmt.Errorf("making an empty root file system: %w", err)
	}
	return digestOf(sum), nil
}
