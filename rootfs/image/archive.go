//go:build linux

package image

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"tendril/fault"
)

// maxMembers bounds what an archive holds: three members for each layer are usual.
const maxMembers = 64 << 10

// archive is a file that docker save wrote. Its members are read where they are.
type archive struct {
	path    string
	file    *os.File
	members map[string]member
}

type member struct {
	offset, size int64
	link         string // of a symbolic or hard link: an older docker save writes a layer once
}

// saved is one image of manifest.json.
type saved struct {
	Config   string
	RepoTags []string
	Layers   []string
}

func openArchive(path string) (*archive, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fault.New(fault.NotFound, "the image archive: %w", err)
	}
	if err != nil {
		return nil, fault.New(fault.Unavailable, "the image archive: %w", err)
	}
	a := &archive{path: path, file: f, members: map[string]member{}}
	if err := a.list(); err != nil {
		f.Close()
		return nil, err
	}
	return a, nil
}

// list notes where each member is.
func (a *archive) list() error {
	if info, err := a.file.Stat(); err != nil || !info.Mode().IsRegular() {
		return fault.New(fault.Invalid, "the image archive %s is no regular file", a.path)
	}
	in := tar.NewReader(a.file)
	for n := 0; ; n++ {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fault.New(fault.Invalid, "the image archive %s is no whole tar: %w", a.path, err).
				WithHint("it has to be what docker save writes, uncompressed")
		}
		if n >= maxMembers {
			return fault.New(fault.Invalid, "the image archive %s has more than %d members", a.path, maxMembers)
		}
		m := member{size: h.Size}
		switch h.Typeflag {
		case tar.TypeReg:
			// The reader takes no more than the header before it is asked for content.
			if m.offset, err = a.file.Seek(0, io.SeekCurrent); err != nil {
				return fault.New(fault.Unavailable, "the image archive: %w", err)
			}
		case tar.TypeSymlink:
			m.link = path.Join(path.Dir(h.Name), h.Linkname)
		case tar.TypeLink:
			m.link = path.Clean(h.Linkname)
		default:
			continue
		}
		if len(h.PAXRecords["GNU.sparse.major"]) > 0 || h.Typeflag == tar.TypeGNUSparse {
			continue // its content is not as it stands there
		}
		a.members[path.Clean(h.Name)] = m
	}
}

// open returns a member's content.
func (a *archive) open(name string) (*io.SectionReader, error) {
	name = path.Clean(name)
	for range 8 {
		m, ok := a.members[name]
		if !ok {
			return nil, fault.New(fault.Invalid, "the image archive %s has no member %.300q", a.path, name).
				WithHint("it has to be what docker save writes; an OCI layout in a tar is to be unpacked first")
		}
		if m.link == "" {
			return io.NewSectionReader(a.file, m.offset, m.size), nil
		}
		name = m.link
	}
	return nil, fault.New(fault.Invalid, "the image archive %s: the member %.300q is a link to a link, and so on", a.path, name)
}

func (a *archive) small(name string, limit int64) ([]byte, error) {
	r, err := a.open(name)
	if err != nil {
		return nil, err
	}
	if r.Size() > limit {
		return nil, fault.New(fault.Invalid, "the image archive %s: %.300q has %d bytes, at most %d are taken", a.path, name, r.Size(), limit)
	}
	data, err := io.ReadAll(r)
	if err == nil && int64(len(data)) != r.Size() {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return nil, fault.New(fault.Unavailable, "the image archive %s: %w", a.path, err)
	}
	return data, nil
}

// locate finds the image with a tag or, without one, the only one. An archive has no
// manifest that a registry would know; the image's own digest, which Docker calls its
// ID, is that of its configuration, and that names every layer by its content.
func (a *archive) locate(tag string) (*located, error) {
	data, err := a.small("manifest.json", maxManifest)
	if err != nil {
		return nil, err
	}
	list, err := parse[[]saved](data, "manifest.json")
	if err != nil {
		return nil, err
	}
	found, err := a.choose(*list, tag)
	if err != nil {
		return nil, err
	}
	if len(found.Layers) > maxLayers {
		return nil, fault.New(fault.Invalid, "the image has %d layers, at most %d are taken", len(found.Layers), maxLayers)
	}
	config, err := a.small(found.Config, maxConfig)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(config)
	digest := "sha256:" + hex.EncodeToString(sum[:])
	// Docker calls it by its digest; some other tools do not.
	named := "sha256:" + strings.TrimPrefix(strings.TrimSuffix(path.Base(found.Config), ".json"), "sha256:")
	if isDigest(named) && named != digest {
		return nil, fault.New(fault.Invalid, "the image archive %s: the configuration is called %s, and its digest is %s", a.path, named, digest)
	}
	return &located{digest: digest, open: func(context.Context) (*content, error) {
		c := &content{config: config}
		for _, name := range found.Layers {
			r, err := a.open(name)
			if err != nil {
				return nil, err
			}
			c.layers = append(c.layers, blob{size: r.Size(), open: func(context.Context) (io.ReadCloser, error) {
				return io.NopCloser(io.NewSectionReader(r, 0, r.Size())), nil
			}})
		}
		return c, nil
	}}, nil
}

func (a *archive) choose(list []saved, tag string) (saved, error) {
	var tags []string
	for _, s := range list {
		tags = append(tags, s.RepoTags...)
	}
	if tag != "" {
		list = slices.DeleteFunc(slices.Clone(list), func(s saved) bool {
			return !slices.ContainsFunc(s.RepoTags, func(t string) bool { return t == tag || strings.HasSuffix(t, ":"+tag) })
		})
	}
	known := fmt.Sprintf("its tags are %.300q", tags)
	switch {
	case len(list) == 0:
		return saved{}, fault.New(fault.NotFound, "the image archive %s has no image with the tag %q", a.path, tag).WithHint("%s", known)
	case slices.ContainsFunc(list, func(s saved) bool { return s.Config != list[0].Config }):
		return saved{}, fault.New(fault.Invalid, "the image archive %s has %d images that %q could mean", a.path, len(list), tag).
			WithHint("name one by its tag; %s", known)
	}
	return list[0], nil
}
