//go:build linux

package guestimage

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"tendril/fault"
)

// Guest is what a machine boots.
type Guest struct {
	Manifest
	Kernel    string // an ELF file
	Initramfs string
	Digest    string // of kernel and initramfs together
}

// Open returns the guest in dir, after its files were compared with the manifest. The
// Stoma is a path: a tendril that carries another one than the guest was used with makes
// the initramfs anew.
func Open(dir, stoma string) (Guest, error) {
	g := Guest{Kernel: filepath.Join(dir, kernelFile)}
	var err error
	if g.Manifest, err = readManifest(dir); err != nil {
		return g, err
	}
	kernelSum, err := verify(g.Kernel, g.Manifest.Kernel)
	if err != nil {
		return g, err
	}
	program, err := os.ReadFile(stoma)
	if err != nil {
		return g, fault.New(fault.Unavailable, "reading the Stoma: %w", err).WithHint("build tendril with `make`")
	}
	modules, err := readVerified(filepath.Join(dir, modulesFile), g.Modules)
	if err != nil {
		return g, err
	}
	var packed bytes.Buffer
	packed.Grow(len(program) + len(modules) + 1<<12)
	if err := packInit(&packed, program); err != nil {
		return g, fmt.Errorf("making the initramfs: %w", err)
	}
	packed.Write(modules)
	want := fileOf(packed.Bytes())
	g.Initramfs = filepath.Join(dir, initramfsName(program))
	g.Digest = digest(sumOf(kernelSum + want.Digest))
	if _, err := os.Lstat(g.Initramfs); errors.Is(err, fs.ErrNotExist) {
		return g, placeInitramfs(g.Initramfs, packed.Bytes())
	}
	_, err = verify(g.Initramfs, want)
	return g, err
}

// Describe returns what the guest in dir was made from, without a look at its files.
func Describe(dir string) (Manifest, error) { return readManifest(dir) }

func sumOf(text string) []byte {
	sum := sha256.Sum256([]byte(text))
	return sum[:]
}

const (
	initramfsPrefix = "initramfs-"
	initramfsSuffix = ".cpio"
)

func initramfsName(stoma []byte) string {
	sum := sha256.Sum256(stoma)
	return fmt.Sprintf("%s%x%s", initramfsPrefix, sum[:16], initramfsSuffix)
}

// packInit writes what the kernel needs to start the Stoma: it, and the console that
// becomes its standard error.
func packInit(w io.Writer, stoma []byte) error {
	a := &archive{w: w}
	for _, dir := range []string{"dev", "proc", "root", "sys"} {
		a.add(entry{name: dir, mode: modeDir | 0o755}, nil)
	}
	a.add(entry{name: "dev/console", mode: modeCharacter | 0o600, major: 5, minor: 1}, nil)
	a.add(entry{name: "init", mode: modeFile | 0o755}, stoma)
	return a.close()
}

// placeInitramfs puts the file there at once, and removes those of other Stomata.
func placeInitramfs(path string, data []byte) error {
	failed := func(err error) error {
		return fault.New(fault.Unavailable, "making the initramfs: %w", err).WithHint("free some disk, or make the guest again: `tendril terrarium setup microvm`")
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".initramfs-")
	if err != nil {
		return failed(err)
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Chmod(0o444), f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return failed(errors.Join(err, os.Remove(f.Name())))
	}
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		return failed(err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), initramfsPrefix) && e.Name() != filepath.Base(path) {
			if err := os.Remove(filepath.Join(filepath.Dir(path), e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return failed(err)
			}
		}
	}
	return nil
}

func readManifest(dir string) (Manifest, error) {
	var m Manifest
	f, err := os.Open(filepath.Join(dir, manifestFile))
	if errors.Is(err, fs.ErrNotExist) {
		return m, fault.New(fault.Unavailable, "there is no guest for micro-VMs yet").
			WithHint("make one: `tendril terrarium setup microvm --download`, or with a kernel of your own (docs/walls.md)")
	}
	if err != nil {
		return m, fault.New(fault.Unavailable, "reading the guest's manifest: %w", err)
	}
	defer f.Close()
	decoder := json.NewDecoder(io.LimitReader(f, maxText))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&m); err != nil || m.Version != manifestVersion {
		return m, fault.New(fault.Unavailable, "the guest in %s was made by another tendril (version %d)", dir, m.Version).
			WithHint("make it again: `tendril terrarium setup microvm`")
	}
	return m, nil
}

// verify refuses a file that is not what the manifest says, and returns its digest.
func verify(path string, want File) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", differs(path, err)
	}
	defer f.Close()
	sum := sha256.New()
	n, err := io.Copy(sum, io.LimitReader(f, want.Size+1))
	if err != nil {
		return "", differs(path, err)
	}
	if got := digest(sum.Sum(nil)); n != want.Size || got != want.Digest {
		return "", differs(path, fmt.Errorf("it has the digest %s, not %s", got, want.Digest))
	}
	return want.Digest, nil
}

func readVerified(path string, want File) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, differs(path, err)
	}
	defer f.Close()
	data, err := readAll(f, want.Size)
	if err != nil {
		return nil, differs(path, err)
	}
	if got := fileOf(data); got != want {
		return nil, differs(path, fmt.Errorf("it has the digest %s, not %s", got.Digest, want.Digest))
	}
	return data, nil
}

func differs(path string, err error) error {
	return fault.New(fault.Unavailable, "the guest's %s is not what was made: %w", filepath.Base(path), err).
		WithRule("what boots is what the manifest says").
		WithHint("make the guest again: `tendril terrarium setup microvm`")
}
