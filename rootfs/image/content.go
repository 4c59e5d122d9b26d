//go:build linux

package image

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"runtime"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/klauspost/compress/zstd"

	"tendril/fault"
)

// Bounds on the parts of an image that are held in memory.
const (
	maxManifest = 4 << 20 // bytes of a manifest or index; registries take no more
	maxConfig   = 8 << 20 // bytes of a configuration, with its history
	maxLayers   = 512
	maxWindow   = 128 << 20 // bytes that a zstd stream may ask for
)

// located is an image that a reference leads to.
type located struct {
	digest string
	index  string // of the index that led to it; "" if none did

	// open reads what it consists of. Nothing of that is verified yet.
	open func(ctx context.Context) (*content, error)
}

// content is what an image consists of.
type content struct {
	config []byte
	layers []blob
}

// blob is a layer as it is stored.
type blob struct {
	digest string // of the stored form; "" if nothing says it
	size   int64  // of the stored form, bytes
	open   func(ctx context.Context) (io.ReadCloser, error)
}

// parse reads a document of an image. Unknown fields are taken: the formats are
// open, and the digest covers all of it.
func parse[T any](data []byte, what string) (*T, error) {
	v := new(T)
	if err := json.Unmarshal(data, v); err != nil {
		return nil, fault.New(fault.Invalid, "%s of the image: %w", what, err)
	}
	return v, nil
}

// configuration reads the configuration of an image for this platform.
func configuration(data []byte, layers int) (*v1.ConfigFile, error) {
	c, err := parse[v1.ConfigFile](data, "the configuration")
	if err != nil {
		return nil, err
	}
	if c.OS != "linux" || c.Architecture != runtime.GOARCH {
		return nil, fault.New(fault.Invalid, "the image is for %.100q, and this host runs linux/%s", c.OS+"/"+c.Architecture, runtime.GOARCH).
			WithHint("name an image for linux/%s", runtime.GOARCH)
	}
	if c.RootFS.Type != "layers" {
		return nil, fault.New(fault.Invalid, "the root file system of the image is of the type %.100q, and layers are taken", c.RootFS.Type)
	}
	if len(c.RootFS.DiffIDs) != layers {
		return nil, fault.New(fault.Invalid, "the configuration of the image names %d layers, and the image has %d", len(c.RootFS.DiffIDs), layers)
	}
	return c, nil
}

// errSource is that a part of an image could not be read to its end, whatever is in it.
var errSource = errors.New("the image could not be read")

// verified reads what has to have a size and digest.
type verified struct {
	r    io.Reader
	ctx  context.Context
	sum  hash.Hash
	left int64
}

func (v *verified) Read(p []byte) (int, error) {
	if err := v.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := v.r.Read(p)
	v.sum.Write(p[:n])
	if v.left -= int64(n); v.left < 0 {
		return 0, errors.New("it is longer than it should be")
	}
	if err != nil && !errors.Is(err, io.EOF) {
		err = fmt.Errorf("%w: %w", errSource, err)
	}
	return n, err
}

// check says whether everything was read and is what it should be.
func (v *verified) check(digest string) error {
	switch {
	case v.left != 0:
		return fmt.Errorf("it is %d bytes shorter than it should be", v.left)
	case digest != "" && digest != digestOf(v.sum):
		return fmt.Errorf("its digest is %s and should be %.100s", digestOf(v.sum), digest)
	}
	return nil
}

func digestOf(sum hash.Hash) string { return "sha256:" + hex.EncodeToString(sum.Sum(nil)) }

// bounded reads no more than a bound that several readers share.
type bounded struct {
	r    io.Reader
	left *int64
}

func (b bounded) Read(p []byte) (int, error) {
	n, err := b.r.Read(p)
	if *b.left -= int64(n); *b.left < 0 {
		return 0, errLarge
	}
	return n, err
}

// decompress looks at how a layer is compressed: what its media type says does not
// count, because the digest of the uncompressed form is known.
func decompress(r io.Reader) (io.Reader, func(), error) {
	in := bufio.NewReaderSize(r, 64<<10)
	magic, err := in.Peek(4)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, nil, err
	}
	switch {
	case bytes.HasPrefix(magic, []byte{0x1f, 0x8b}):
		z, err := gzip.NewReader(in)
		if err != nil {
			return nil, nil, err
		}
		return z, func() { z.Close() }, nil
	case bytes.HasPrefix(magic, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		z, err := zstd.NewReader(in, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow), zstd.WithDecoderMaxMemory(2*maxWindow))
		if err != nil {
			return nil, nil, err
		}
		return z, z.Close, nil
	}
	return in, func() {}, nil
}

// apply lays one layer over the tree, and believes it when its digests are right.
func (f *flattener) apply(ctx context.Context, b blob, diffID string) error {
	stored, err := b.open(ctx)
	if err != nil {
		return err
	}
	defer stored.Close()
	whole := &verified{r: stored, ctx: ctx, sum: sha256.New(), left: b.size}
	f.n++
	plain, done, err := decompress(whole)
	if err != nil {
		return f.refuse(err)
	}
	defer done()
	sum := sha256.New()
	in := io.TeeReader(bounded{plain, &f.stream}, sum)
	if err := f.layer(ctx, in); err != nil {
		return err
	}
	// What follows the end of the tar is part of the digests.
	for _, rest := range []io.Reader{in, whole} {
		if _, err := io.Copy(io.Discard, rest); err != nil {
			return f.refuse(err)
		}
	}
	err = whole.check(b.digest)
	if err == nil && digestOf(sum) != diffID {
		err = fmt.Errorf("its uncompressed digest is %s, and the configuration says %.100s", digestOf(sum), diffID)
	}
	if err != nil {
		return f.refuse(err)
	}
	return nil
}
