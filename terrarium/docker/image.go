//go:build linux

package docker

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"time"

	"tendril/erofs"
	"tendril/fault"
	"tendril/rootfs"
	"tendril/terrarium"
)

// rootImage is a root file system as the daemon gets it: an archive, which becomes the one
// layer of an image. A name is not what is in it, and the daemon moves one to another image
// for whoever asks: what counts is the layer's digest, which is that of the archive
// (OCI image specification, DiffID).
type rootImage struct {
	name  string // with a tag that says what is in it
	write func(io.Writer) error
}

// imageOf is an unpacked OCI image, under its digest.
func imageOf(from *terrarium.Image) rootImage {
	_, digest, _ := strings.Cut(from.Digest, ":")
	return rootImage{"tendril/image:" + digest, func(w io.Writer) error { return erofs.WriteFileTar(w, from.Path) }}
}

// skeleton is the part of a view that is not mounted: its directories, links and files,
// under the digest of their content.
func skeleton(view rootfs.View) (rootImage, error) {
	var content bytes.Buffer
	if err := writeSkeleton(&content, view); err != nil {
		return rootImage{}, fmt.Errorf("making the root file system: %w", err)
	}
	return rootImage{fmt.Sprintf("tendril/view:%x", sha256.Sum256(content.Bytes())), func(w io.Writer) error {
		_, err := w.Write(content.Bytes())
		return err
	}}, nil
}

func writeSkeleton(w io.Writer, view rootfs.View) error {
	out := tar.NewWriter(w)
	add := func(path string, h tar.Header, content []byte) error {
		h.Name, h.ModTime, h.Size = strings.TrimPrefix(path, "/"), time.Unix(1, 0), int64(len(content))
		if err := out.WriteHeader(&h); err != nil {
			return err
		}
		_, err := out.Write(content)
		return err
	}
	for _, d := range view.Dirs {
		mode := int64(d.Mode.Perm())
		if d.Mode&fs.ModeSticky != 0 {
			mode |= 0o1000
		}
		if d.Path == stomaDir {
			mode = 0o711 // the Sprout may enter it and execute the Stoma, as probes do
		}
		if err := add(d.Path+"/", tar.Header{Typeflag: tar.TypeDir, Mode: mode}, nil); err != nil {
			return err
		}
	}
	for _, path := range slices.Sorted(maps.Keys(view.Links)) {
		if err := add(path, tar.Header{Typeflag: tar.TypeSymlink, Linkname: view.Links[path], Mode: 0o777}, nil); err != nil {
			return err
		}
	}
	for _, path := range slices.Sorted(maps.Keys(view.Files)) {
		if err := add(path, tar.Header{Typeflag: tar.TypeReg, Mode: 0o644}, view.Files[path]); err != nil {
			return err
		}
	}
	return out.Close()
}

// keptImages is how many images of a site a daemon keeps of which no container is made: a
// view changes when the host's programs do, an image when its tag leads elsewhere.
const keptImages = 8

// bring gives the daemon the image, and lets it forget the oldest that this site gave it.
func (p *provider) bring(ctx context.Context, i rootImage) error {
	r, w := io.Pipe()
	written := make(chan error, 1)
	sum := sha256.New()
	go func() {
		err := i.write(io.MultiWriter(w, sum))
		w.CloseWithError(err)
		written <- err
	}()
	err := p.daemon.importImage(ctx, i.name, map[string]string{labelImage: p.Site}, r)
	r.CloseWithError(errors.New("the daemon reads no more"))
	whole := <-written == nil // a daemon may take the end for granted
	if err != nil {
		return err
	}
	if whole {
		if err := p.layers().keep(i.name, digestOf(sum)); err != nil {
			return err
		}
	}
	names, err := p.daemon.images(ctx, labelImage, p.Site)
	for _, name := range names[min(len(names), keptImages):] {
		if strings.HasPrefix(name, "tendril/") {
			err = errors.Join(err, p.daemon.forget(ctx, name))
		}
	}
	return errors.Join(err, p.forgetNameless(ctx, time.Now().Add(-namelessAge)))
}

// namelessAge is how old an image without a name has to be for nobody to be naming it.
const namelessAge = time.Minute

// forgetNameless removes images that lost their name to another: of two that bring one image at a
// time the later has it.
func (p *provider) forgetNameless(ctx context.Context, before time.Time) error {
	nameless, err := p.daemon.nameless(ctx, labelImage, p.Site, before)
	for _, id := range nameless {
		err = errors.Join(err, p.daemon.forget(ctx, id))
	}
	return err
}

func digestOf(sum hash.Hash) string { return fmt.Sprintf("sha256:%x", sum.Sum(nil)) }

// measure works out the digest of what the image has to hold, and remembers it.
func (p *provider) measure(i rootImage) (string, error) {
	sum := sha256.New()
	if err := i.write(sum); err != nil {
		return "", fmt.Errorf("reading the root file system: %w", err)
	}
	return digestOf(sum), p.layers().keep(i.name, digestOf(sum))
}

// readBackImage refuses an image that holds something else than was given to the daemon under its
// name.
func (p *provider) readBackImage(ctx context.Context, id string, i rootImage) error {
	got, err := p.daemon.layersOf(ctx, id)
	if err != nil {
		return err
	}
	if known := p.layers().of(i.name); known != "" && slices.Equal(got, []string{known}) {
		return nil
	}
	// What is remembered may be of another version of the archive.
	want, err := p.measure(i)
	if err != nil {
		return err
	}
	if !slices.Equal(got, []string{want}) {
		return fault.New(fault.BrokenBoundary, "the daemon's image %s holds something else than was given to it", i.name).
			WithRule(whatWasAsked).WithHint("somebody gave its name away; remove it, and the next run brings it again: docker image rm %s", i.name)
	}
	return nil
}
