//go:build linux

package guestimage

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"tendril/fault"
)

// Source says what a guest is made from: a package, or a kernel and its modules.
type Source struct {
	Package string // a Debian package of a kernel
	Kernel  string // a kernel image, or an uncompressed vmlinux
	Modules string // its modules directory, as below /lib/modules
	Digest  string // "sha256:" and 64 hexadecimal digits that Package or Kernel has to have; "": any
}

// Manifest says what a guest consists of.
type Manifest struct {
	Version int      `json:"version"`
	Release string   `json:"release"` // of the kernel
	Source  string   `json:"source"`  // name of the package or kernel that it was made from
	Digest  string   `json:"digest"`  // of that file
	PVH     bool     `json:"pvh"`     // the kernel can be started as QEMU does it
	Kernel  File     `json:"kernel"`
	Modules File     `json:"modules"`
	Loads   []string `json:"loads"` // names of the modules, in the order of loading
}

// File is one file of a guest.
type File struct {
	Size   int64  `json:"size"`
	Digest string `json:"digest"` // "sha256:" and 64 hexadecimal digits
}

// The files of a guest's directory. The initramfs has the digest of its Stoma in its
// name: another tendril makes another one, from the same modules.
const (
	manifestFile    = "manifest.json"
	kernelFile      = "vmlinux"
	modulesFile     = "modules.cpio"
	manifestVersion = 1
)

// Build makes a guest in dir, in place of one that is there. On an error dir is as it
// was.
func Build(ctx context.Context, source Source, dir string) (Manifest, error) {
	k, mods, manifest, err := read(ctx, source)
	if err != nil {
		return Manifest{}, err
	}
	var packed strings.Builder
	if err := packModules(&packed, mods); err != nil {
		return Manifest{}, err
	}
	manifest.Version, manifest.Release, manifest.PVH = manifestVersion, k.release, k.pvh
	manifest.Kernel, manifest.Modules = fileOf(k.elf), fileOf([]byte(packed.String()))
	for _, m := range mods {
		manifest.Loads = append(manifest.Loads, m.name)
	}
	text, err := json.MarshalIndent(manifest, "", "  ")
	if err != nil {
		return Manifest{}, fmt.Errorf("making the guest: %w", err)
	}
	err = replace(dir, map[string][]byte{
		kernelFile: k.elf, modulesFile: []byte(packed.String()), manifestFile: append(text, '\n'),
	})
	if err != nil {
		return Manifest{}, fault.New(fault.Unavailable, "putting the guest into %s: %w", dir, err)
	}
	return manifest, nil
}

// Remove takes back what Build made. It reports whether there was something.
func Remove(dir string) (bool, error) {
	if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err := os.RemoveAll(dir); err != nil {
		return true, fault.New(fault.Unavailable, "removing the guest: %w", err)
	}
	return true, nil
}

func read(ctx context.Context, source Source) (kernel, []module, Manifest, error) {
	switch {
	case (source.Package == "") == (source.Kernel == ""):
		return kernel{}, nil, Manifest{}, fault.New(fault.Invalid, "a guest is made from a kernel's package, or from a kernel and its modules")
	case (source.Kernel == "") != (source.Modules == ""):
		return kernel{}, nil, Manifest{}, fault.New(fault.Invalid, "a kernel and the directory of its modules belong together")
	case source.Package != "":
		return readPackage(ctx, source)
	default:
		return readKernelAndModules(source)
	}
}

func readPackage(ctx context.Context, source Source) (k kernel, mods []module, m Manifest, err error) {
	name := filepath.Base(source.Package)
	f, err := os.Open(source.Package)
	if err != nil {
		return k, nil, m, fault.New(fault.Invalid, "opening the package: %w", err)
	}
	defer f.Close()
	sum := sha256.New()
	size, err := io.Copy(sum, &interruptible{ctx, f})
	if err != nil {
		return k, nil, m, fault.New(fault.Invalid, "reading the package %s: %w", name, err)
	}
	m.Source, m.Digest = name, digest(sum.Sum(nil))
	if err := source.expect(name, m.Digest); err != nil {
		return k, nil, m, err
	}
	t, err := openPackage(ctx, name, f, size)
	if err != nil {
		return k, nil, m, err
	}
	defer func() { err = errors.Join(err, t.close()) }()
	image, err := packagedKernel(t, name)
	if err != nil {
		return k, nil, m, err
	}
	data, err := t.files[image](maxKernel)
	if err != nil {
		return k, nil, m, fault.New(fault.Invalid, "reading %s of the package %s: %w", image, name, err)
	}
	if k, err = readKernel(image, data); err != nil {
		return k, nil, m, err
	}
	mods, err = pickModules(t, k.release)
	return k, mods, m, err
}

// packagedKernel is the path of the one kernel in a package.
func packagedKernel(t tree, name string) (string, error) {
	var found []string
	for _, file := range sortedNames(t) {
		if strings.HasPrefix(file, "boot/vmlinuz-") {
			found = append(found, file)
		}
	}
	if len(found) != 1 {
		return "", fault.New(fault.Invalid, "the package %s holds %d kernels, and one is needed", name, len(found)).
			WithHint("name a package linux-image-…, not one that only depends on it")
	}
	return found[0], nil
}

func readKernelAndModules(source Source) (k kernel, mods []module, m Manifest, err error) {
	name := filepath.Base(source.Kernel)
	f, err := os.Open(source.Kernel)
	if err != nil {
		return k, nil, m, fault.New(fault.Invalid, "opening the kernel: %w", err)
	}
	defer f.Close()
	data, err := readAll(f, maxKernel)
	if err != nil {
		return k, nil, m, fault.New(fault.Invalid, "reading the kernel %s: %w", name, err)
	}
	m.Source, m.Digest = name, fileOf(data).Digest
	if err := source.expect(name, m.Digest); err != nil {
		return k, nil, m, err
	}
	if k, err = readKernel(name, data); err != nil {
		return k, nil, m, err
	}
	t, err := openDirectory(source.Modules)
	if err != nil {
		return k, nil, m, err
	}
	defer func() { err = errors.Join(err, t.close()) }()
	mods, err = pickModules(t, k.release)
	return k, mods, m, err
}

// expect refuses a file that is not the one that was meant.
func (s Source) expect(name, got string) error {
	if s.Digest == "" || s.Digest == got {
		return nil
	}
	return fault.New(fault.Invalid, "the file %s has the digest %s, not %s", name, got, s.Digest).
		WithRule("what is named with a digest has that digest")
}

// packModules writes the modules and the list that the guest loads them by: a line for
// each, with the carrier that it is for, if it is for one only.
func packModules(w io.Writer, mods []module) error {
	a := &archive{w: w}
	a.add(entry{name: "modules", mode: modeDir | 0o700}, nil)
	var list strings.Builder
	for _, m := range mods {
		fmt.Fprintln(&list, strings.TrimSpace(m.name+" "+m.carrier))
	}
	a.add(entry{name: "modules/list", mode: modeFile | 0o600}, []byte(list.String()))
	sorted := slices.SortedFunc(slices.Values(mods), func(x, y module) int { return strings.Compare(x.name, y.name) })
	for _, m := range sorted {
		a.add(entry{name: "modules/" + m.name + ".ko", mode: modeFile | 0o600}, m.content)
	}
	return a.close()
}

func fileOf(data []byte) File {
	sum := sha256.Sum256(data)
	return File{int64(len(data)), digest(sum[:])}
}

func digest(sum []byte) string { return "sha256:" + hex.EncodeToString(sum) }

// replace makes dir hold the files and nothing else, at once.
func replace(dir string, files map[string][]byte) (err error) {
	if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
		return err
	}
	fresh, err := os.MkdirTemp(filepath.Dir(dir), "."+filepath.Base(dir)+"-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(fresh)) }() // the old one, when all went well
	for name, data := range files {
		if err := writeFile(filepath.Join(fresh, name), data); err != nil {
			return err
		}
	}
	return exchange(fresh, dir)
}

func writeFile(path string, data []byte) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	// Whoever emulates the machine may be another account than the one that makes it.
	return errors.Join(err, f.Chmod(0o444), f.Sync(), f.Close())
}
