//go:build linux

package stem

import (
	"context"
	"path/filepath"

	"tendril/capability"
	"tendril/fault"
	"tendril/rootfs"
	"tendril/rootfs/image"
	"tendril/terrarium"
)

// Images unpacks OCI images, once, and keeps them.
type Images interface {
	// Get returns the image that a reference leads to, and holds it until release is
	// called.
	Get(ctx context.Context, ref string) (i image.Image, release func(), err error)
}

// takeImage gets the image that the work asked for, and what it says of its environment.
func (g *growth) takeImage(ctx context.Context) error {
	ref := g.plan.work.Image
	if ref == "" {
		return nil
	}
	capability.Progress(ctx, "getting the image", 0, 0)
	got, release, err := g.stem.image(ctx, ref)
	if err != nil {
		return err
	}
	g.image, g.releaseImage = &got, release
	g.plan.env = environment(append([]string{defaultPath}, got.Env...), g.plan.extra)
	return nil
}

func (s *Stem) image(ctx context.Context, ref string) (image.Image, func(), error) {
	if s.config.Images == nil {
		return image.Image{}, nil, fault.New(fault.Unavailable, "this site keeps no images")
	}
	return s.config.Images.Get(ctx, ref)
}

// root is the root file system of the run.
func (g *growth) root() terrarium.Rootfs {
	root := terrarium.Rootfs{Programs: g.plan.programs, Authority: g.reach.certificate()}
	if g.image != nil {
		root.Image = &terrarium.Image{Path: g.image.Path, Digest: g.image.Digest}
	} else {
		root.Host = &terrarium.HostView{Dirs: g.plan.toolchain}
	}
	return root
}

// SproutUser is the Sprout as root file systems know it.
var SproutUser = rootfs.User{UID: sproutOwner.UID, GID: sproutOwner.GID, Name: "sprout", Home: sproutHome}

// probedRoot is the root file system of a Terrarium in which nothing runs but probes: the
// image that was asked for, this host's toolchain, or, for a wall that cannot show that, one
// that is empty. release gives it back.
func (s *Stem) probedRoot(ctx context.Context, in capability.ProbeInput, can terrarium.Capabilities, dir string) (root terrarium.Rootfs, release func(), err error) {
	release = func() {}
	switch {
	case in.Image != "":
		got, release, err := s.image(ctx, in.Image)
		if err != nil {
			return root, nil, err
		}
		root.Image = &terrarium.Image{Path: got.Path, Digest: got.Digest}
		return root, release, nil
	case can.Keeps("Rootfs.Host.Dirs"):
		root.Host = &terrarium.HostView{Dirs: s.config.Toolchain}
	default:
		path := filepath.Join(dir, "root.erofs")
		digest, err := image.WriteEmpty(ctx, SproutUser, path)
		if err != nil {
			return root, nil, err
		}
		root.Image = &terrarium.Image{Path: path, Digest: digest}
	}
	return root, release, nil
}
