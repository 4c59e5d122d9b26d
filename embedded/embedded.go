// Package embedded is for programs that `tendril` carries in itself, built for Linux
// beforehand, so that a Terrarium needs no second download. It promises the bytes that
// were there when this program was built, nothing about them.
package embedded

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"

	"tendril/fault"
)

// A Program is one static program for some architectures.
type Program struct {
	Name  string
	Files fs.FS // built/NAME-linux-GOARCH
}

// Bytes returns the program for Linux on the architecture, a GOARCH. It is unavailable
// when this tendril was built without it.
func (p Program) Bytes(goarch string) ([]byte, error) {
	b, err := fs.ReadFile(p.Files, "built/"+p.Name+"-linux-"+goarch)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(b) == 0 {
		return nil, fault.New(fault.Unavailable, "this tendril was built without its %s for %s", p.Name, goarch).
			WithHint("build it with `make`")
	}
	if err != nil {
		return nil, fault.New(fault.Internal, "read the embedded %s for %s: %w", p.Name, goarch, err)
	}
	return b, nil
}

// Install puts the program for this machine into dir, under its name and its digest, and
// returns its path. A file of that name is left as it is: only its owner can have
// written it, and it was renamed into place whole.
func (p Program) Install(dir string) (string, error) {
	data, err := p.Bytes(runtime.GOARCH)
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, fmt.Sprintf("%s-%x", p.Name, sha256.Sum256(data)))
	if info, err := os.Lstat(path); err == nil && info.Mode().IsRegular() && info.Size() == int64(len(data)) {
		return path, nil
	}
	if err := install(dir, path, data); err != nil {
		return "", fault.New(fault.Unavailable, "putting %s into %s: %w", p.Name, dir, err).
			WithHint("make the directory writable, or free some disk")
	}
	return path, nil
}

func install(dir, path string, data []byte) error {
	f, err := os.CreateTemp(dir, ".program-*")
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	err = errors.Join(err, f.Chmod(0o555), f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		if removeErr := os.Remove(f.Name()); !errors.Is(removeErr, fs.ErrNotExist) {
			err = errors.Join(err, removeErr)
		}
	}
	return err
}
