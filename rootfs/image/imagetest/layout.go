//go:build linux

package imagetest

import (
	"archive/tar"
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"time"
)

// writeLayout writes the files as an OCI layout with one uncompressed layer.
func (f *files) writeLayout(dir string) error {
	if err := os.MkdirAll(filepath.Join(dir, "blobs/sha256"), 0o700); err != nil {
		return err
	}
	layer, err := f.writeLayer(dir)
	if err != nil {
		return err
	}
	type object = map[string]any
	config, err := writeBlob(dir, "application/vnd.oci.image.config.v1+json", object{
		"os": "linux", "architecture": runtime.GOARCH,
		"config": object{"Env": f.env, "Cmd": []string{"bash"}},
		"rootfs": object{"type": "layers", "diff_ids": []any{layer["digest"]}},
	})
	if err != nil {
		return err
	}
	manifest, err := writeBlob(dir, "application/vnd.oci.image.manifest.v1+json", object{
		"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
		"config": config, "layers": []any{layer},
	})
	if err != nil {
		return err
	}
	index, err := json.Marshal(object{"schemaVersion": 2, "manifests": []any{manifest}})
	if err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(filepath.Join(dir, "index.json"), index, 0o600),
		os.WriteFile(filepath.Join(dir, "oci-layout"), []byte(`{"imageLayoutVersion":"1.0.0"}`), 0o600))
}

// writeBlob writes a document and returns its descriptor.
func writeBlob(dir, mediaType string, v any) (map[string]any, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(data)
	name := hex.EncodeToString(sum[:])
	return descriptor(mediaType, name, int64(len(data))), os.WriteFile(filepath.Join(dir, "blobs/sha256", name), data, 0o600)
}

func descriptor(mediaType, sum string, size int64) map[string]any {
	return map[string]any{"mediaType": mediaType, "digest": "sha256:" + sum, "size": size}
}

// writeLayer writes the layer and returns its descriptor.
func (f *files) writeLayer(dir string) (map[string]any, error) {
	path := filepath.Join(dir, "layer")
	out, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	sum := sha256.New()
	buffered := bufio.NewWriterSize(io.MultiWriter(out, sum), 1<<20)
	layer := tar.NewWriter(buffered)
	first := map[inode]string{}
	for _, p := range f.sorted() {
		e := f.list[p]
		link := first[e.inode]
		if e.inode != (inode{}) && link == "" {
			first[e.inode] = p[1:]
		}
		if err := e.write(layer, p, link); err != nil {
			return nil, fmt.Errorf("%s: %w", p, err)
		}
	}
	if err := errors.Join(layer.Close(), buffered.Flush()); err != nil {
		return nil, err
	}
	info, err := out.Stat()
	if err != nil {
		return nil, err
	}
	name := hex.EncodeToString(sum.Sum(nil))
	return descriptor("application/vnd.oci.image.layer.v1.tar", name, info.Size()), os.Rename(path, filepath.Join(dir, "blobs/sha256", name))
}

// write writes one entry, which belongs to root. link is the name under which the file
// was written already.
func (e file) write(layer *tar.Writer, path, link string) error {
	h := &tar.Header{Name: path[1:], Mode: int64(e.mode.Perm()), ModTime: e.time}
	if e.time.IsZero() {
		h.ModTime = time.Unix(0, 0)
	}
	switch {
	case e.mode.IsDir():
		h.Typeflag, h.Name = tar.TypeDir, h.Name+"/"
		if e.mode&fs.ModeSticky != 0 {
			h.Mode |= 0o1000
		}
		return layer.WriteHeader(h)
	case link != "":
		h.Typeflag, h.Linkname = tar.TypeLink, link
		return layer.WriteHeader(h)
	case e.target != "":
		h.Typeflag, h.Linkname = tar.TypeSymlink, e.target
		return layer.WriteHeader(h)
	}
	h.Typeflag, h.Size = tar.TypeReg, e.size
	if err := layer.WriteHeader(h); err != nil {
		return err
	}
	in, err := os.Open(e.source)
	if err != nil {
		return err
	}
	defer in.Close()
	_, err = io.Copy(layer, io.LimitReader(in, e.size))
	return err
}
