//go:build linux

package image

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"tendril/fault"
)

// blobs are documents and layers by digest, as a layout and a registry have them.
type blobs interface {
	// document returns a manifest or index, of at most maxManifest bytes.
	document(ctx context.Context, d v1.Descriptor) ([]byte, error)
	// blob opens anything else.
	blob(ctx context.Context, d v1.Descriptor) (io.ReadCloser, error)
}

// envelope is what distinguishes a manifest from an index. A document that could
// be either is refused (CVE-2021-41190).
type envelope struct {
	SchemaVersion int             `json:"schemaVersion"`
	MediaType     types.MediaType `json:"mediaType"`
	Config        *v1.Descriptor  `json:"config"`
	Layers        []v1.Descriptor `json:"layers"`
	Manifests     []v1.Descriptor `json:"manifests"`
	History       []any           `json:"history"` // of schema 1
}

func parseDocument(data []byte) (*envelope, error) {
	e, err := parse[envelope](data, "the manifest")
	if err != nil {
		return nil, err
	}
	index := e.Manifests != nil
	switch {
	case e.SchemaVersion == 1 || e.MediaType.IsSchema1():
		return nil, fault.New(fault.Invalid, "the manifest of the image is of Docker's schema 1, which is not taken").
			WithHint("pull and push the image with a current tool")
	case e.SchemaVersion != 2, e.History != nil, index == (e.Config != nil || e.Layers != nil),
		e.MediaType != "" && index != e.MediaType.IsIndex(), e.MediaType != "" && !index && !e.MediaType.IsImage():
		return nil, fault.New(fault.Invalid, "the manifest of the image is neither a manifest nor an index of version 2")
	case len(e.Layers) > maxLayers:
		return nil, fault.New(fault.Invalid, "the image has %d layers, at most %d are taken", len(e.Layers), maxLayers)
	}
	return e, nil
}

// follow reads a document and, from an index, the one for this platform.
func follow(ctx context.Context, b blobs, d v1.Descriptor) (*located, error) {
	index := ""
	for range 3 { // an index may lead to an index, as that of a layout does
		data, err := b.document(ctx, d)
		if err != nil {
			return nil, err
		}
		if sum := sha256.Sum256(data); "sha256:"+hex.EncodeToString(sum[:]) != d.Digest.String() {
			return nil, fault.New(fault.Invalid, "the manifest of the image has another digest than %s", d.Digest)
		}
		e, err := parseDocument(data)
		if err != nil {
			return nil, err
		}
		if e.Manifests == nil {
			return &located{digest: d.Digest.String(), index: index, open: func(ctx context.Context) (*content, error) {
				return e.content(ctx, b)
			}}, nil
		}
		if index == "" {
			index = d.Digest.String()
		}
		if d, err = forPlatform(e.Manifests); err != nil {
			return nil, err
		}
	}
	return nil, fault.New(fault.Invalid, "the index of the image leads to an index, and that to another")
}

// forPlatform picks the manifest of this platform from an index. What says no
// platform is one for whatever its configuration says.
func forPlatform(list []v1.Descriptor) (v1.Descriptor, error) {
	var offered []string
	var unknown []v1.Descriptor
	for _, d := range list {
		switch p := d.Platform; {
		case p == nil && (d.MediaType.IsImage() || d.MediaType.IsIndex()):
			unknown = append(unknown, d)
		case p == nil:
		case p.OS == "linux" && p.Architecture == runtime.GOARCH:
			return d, nil // of several variants, the first is the preferred one
		case p.OS != "unknown": // an attestation says that
			offered = append(offered, p.String())
		}
	}
	if len(unknown) == 1 && len(offered) == 0 {
		return unknown[0], nil
	}
	slices.Sort(offered)
	return v1.Descriptor{}, fault.New(fault.NotFound, "the image is not there for linux/%s", runtime.GOARCH).
		WithHint("it is there for %.300s", strings.Join(append(slices.Compact(offered), fmt.Sprintf("%d unnamed platforms", len(unknown))), ", "))
}

// layerTypes are the media types of layers that are taken. How one is compressed is
// looked at; one that an image only refers to, or that is encrypted, is not taken.
var layerTypes = []types.MediaType{
	types.OCIUncompressedLayer, types.OCILayer, types.OCILayerZStd,
	types.DockerUncompressedLayer, types.DockerLayer, types.DockerUncompressedLayer + ".zstd",
}

// content finds what a manifest names.
func (e *envelope) content(ctx context.Context, b blobs) (*content, error) {
	if e.Config == nil || !e.Config.MediaType.IsConfig() {
		return nil, fault.New(fault.Invalid, "the manifest is of something else than an image of a root file system")
	}
	if e.Config.Size < 0 || e.Config.Size > maxConfig {
		return nil, fault.New(fault.Invalid, "the configuration of the image has %d bytes, at most %d are taken", e.Config.Size, maxConfig)
	}
	c := &content{}
	for _, l := range e.Layers {
		if !isDigest(l.Digest.String()) || l.Size < 0 {
			return nil, fault.New(fault.Invalid, "a layer of the image has the digest %s and the size %d", l.Digest, l.Size)
		}
		if !slices.Contains(layerTypes, l.MediaType) {
			return nil, fault.New(fault.Invalid, "a layer of the image is of the type %.200q, which is not taken", l.MediaType)
		}
		c.layers = append(c.layers, blob{digest: l.Digest.String(), size: l.Size,
			open: func(ctx context.Context) (io.ReadCloser, error) { return b.blob(ctx, l) }})
	}
	r, err := b.blob(ctx, *e.Config)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	whole := &verified{r: r, ctx: ctx, sum: sha256.New(), left: e.Config.Size}
	if c.config, err = io.ReadAll(whole); err == nil {
		err = whole.check(e.Config.Digest.String())
	}
	if errors.Is(err, errSource) {
		return nil, err
	}
	if err != nil {
		return nil, fault.New(fault.Invalid, "the configuration of the image: %w", err)
	}
	return c, nil
}
