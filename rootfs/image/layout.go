//go:build linux

package image

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/sys/unix"

	"tendril/fault"
)

// Names of an OCI layout (image-layout.md of the OCI image specification).
const (
	layoutFile = "oci-layout"
	indexFile  = "index.json"
	tagKey     = "org.opencontainers.image.ref.name"
)

// layout is a directory of blobs. Nothing outside of it is opened, whatever links
// are in it.
type layout struct{ dir string }

// openRegular opens a regular file below the directory, and waits for nothing.
func (l layout) openRegular(path string) (*os.File, error) {
	root, err := os.OpenRoot(l.dir)
	if err != nil {
		return nil, fault.New(fault.Unavailable, "the OCI layout: %w", err)
	}
	defer root.Close()
	f, err := root.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fault.New(fault.NotFound, "the OCI layout %s is not whole: it has no %s", l.dir, path)
	}
	if err != nil {
		return nil, fault.New(fault.Unavailable, "the OCI layout %s: %w", l.dir, err)
	}
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		f.Close()
		return nil, fault.New(fault.Invalid, "the OCI layout %s: %s is no regular file", l.dir, path)
	}
	return f, nil
}

func (l layout) small(path string) ([]byte, error) {
	f, err := l.openRegular(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxManifest+1))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errSource, err)
	}
	if len(data) > maxManifest {
		return nil, fault.New(fault.Invalid, "the OCI layout %s: %s has more than %d bytes", l.dir, path, maxManifest)
	}
	return data, nil
}

func (l layout) blob(_ context.Context, d v1.Descriptor) (io.ReadCloser, error) {
	if !isDigest(d.Digest.String()) {
		return nil, fault.New(fault.Invalid, "the OCI layout %s names the digest %.100q", l.dir, d.Digest)
	}
	return l.openRegular("blobs/sha256/" + d.Digest.Hex)
}

func (l layout) document(_ context.Context, d v1.Descriptor) ([]byte, error) {
	if !isDigest(d.Digest.String()) {
		return nil, fault.New(fault.Invalid, "the OCI layout %s names the digest %.100q", l.dir, d.Digest)
	}
	return l.small("blobs/sha256/" + d.Digest.Hex)
}

// locate finds the image with a tag or, without one, the only one.
func (l layout) locate(ctx context.Context, tag string) (*located, error) {
	data, err := l.small(layoutFile)
	if err != nil {
		return nil, err
	}
	version, err := parse[struct {
		Version string `json:"imageLayoutVersion"`
	}](data, layoutFile)
	if err != nil {
		return nil, err
	}
	if version.Version != "1.0.0" {
		return nil, fault.New(fault.Invalid, "the OCI layout %s has version %.100q, and 1.0.0 is read", l.dir, version.Version)
	}
	if data, err = l.small(indexFile); err != nil {
		return nil, err
	}
	index, err := parseDocument(data)
	if err != nil {
		return nil, err
	}
	if index.Manifests == nil {
		return nil, fault.New(fault.Invalid, "%s of the OCI layout %s is no index", indexFile, l.dir)
	}
	d, err := l.choose(index.Manifests, tag)
	if err != nil {
		return nil, err
	}
	return follow(ctx, l, d)
}

func (l layout) choose(list []v1.Descriptor, tag string) (v1.Descriptor, error) {
	var tags []string
	matching := list
	if tag != "" {
		matching = slices.DeleteFunc(slices.Clone(list), func(d v1.Descriptor) bool {
			return d.Annotations[tagKey] != tag && !strings.HasSuffix(d.Annotations[tagKey], ":"+tag)
		})
	}
	for _, d := range list {
		if t := d.Annotations[tagKey]; t != "" {
			tags = append(tags, t)
		}
	}
	known := fmt.Sprintf("its tags are %.300q", tags)
	switch same := sameDigest(matching); {
	case len(matching) == 0 && tag == "":
		return v1.Descriptor{}, fault.New(fault.NotFound, "the OCI layout %s holds no image", l.dir)
	case len(matching) == 0:
		return v1.Descriptor{}, fault.New(fault.NotFound, "the OCI layout %s has no image with the tag %q", l.dir, tag).WithHint("%s", known)
	case same:
		return matching[0], nil
	}
	// One image for several platforms may stand there without an index of its own.
	if d, err := forPlatform(matching); err == nil && onePerPlatform(matching) {
		return d, nil
	}
	return v1.Descriptor{}, fault.New(fault.Invalid, "the OCI layout %s has %d images that %q could mean", l.dir, len(matching), tag).
		WithHint("name one by its tag; %s", known)
}

func sameDigest(list []v1.Descriptor) bool {
	return !slices.ContainsFunc(list, func(d v1.Descriptor) bool { return d.Digest != list[0].Digest })
}

func onePerPlatform(list []v1.Descriptor) bool {
	seen := map[string]bool{}
	for _, d := range list {
		if d.Platform == nil || seen[d.Platform.String()] {
			return false
		}
		seen[d.Platform.String()] = true
	}
	return true
}
