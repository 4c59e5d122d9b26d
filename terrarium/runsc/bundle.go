//go:build linux

package runsc

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"tendril/erofs"
	"tendril/rootfs"
	"tendril/terrarium"
	"tendril/terrarium/confine"
)

// Where things are inside. The private directory is root's alone: the Sprout
// meets what is mounted there only through /workspace, /tmp and its home.
const (
	insidePrivate = rootfs.Private
	insideBase    = rootfs.PrivateBase
	insideScratch = rootfs.PrivateScratch
	insideCgroup  = insidePrivate + "/cgroup"
	workspace     = "/workspace"
)

// The Stoma's capabilities: to become the Sprout, to signal it, and, until the
// overlay and the scratch directories are mounted, to mount. It gives up the
// last before the first exec.
var stomaCapabilities = []string{"CAP_SETUID", "CAP_SETGID", "CAP_KILL", "CAP_SYS_ADMIN", "CAP_CHOWN", "CAP_SYS_CHROOT", "CAP_DAC_OVERRIDE", "CAP_FOWNER"}

// deviceSize and sharedMemorySize bound the two memory file systems that are not
// part of the disk limit; the memory limit counts them too.
const (
	deviceSize       = "1m"
	sharedMemorySize = "64m"
)

// bundle is the directory that gVisor reads: the specification, and the root file system
// as an image, which the sentry mounts itself. So nothing in it
// costs a file on the host, and what is in it belongs to root inside, whoever runs it.
type bundle struct {
	dir     string
	root    string            // the image of the root file system: the skeleton of a view, or an OCI image's tree
	scratch string            // holds the file that backs the scratch file system
	empty   string            // an empty file, shown where a file of the host must not be
	over    map[string][]byte // files of the bundle that are laid over an OCI image's tree, by path
}

// bundleBelow names the parts of a bundle in dir.
func bundleBelow(dir string) bundle {
	b := bundle{dir: filepath.Join(dir, "bundle"), scratch: filepath.Join(dir, "scratch")}
	b.root, b.empty = filepath.Join(b.dir, skeletonFile), filepath.Join(b.dir, "empty")
	return b
}

const skeletonFile = "skeleton.erofs"

// layOver makes the files of a view files of the bundle, which are mounted: an OCI image
// has a place for each, and is itself the same file for every run.
func (b *bundle) layOver(view rootfs.View) rootfs.View {
	b.over = map[string][]byte{}
	view.Mounts = slices.Clone(view.Mounts)
	for _, target := range slices.Sorted(maps.Keys(view.Files)) {
		if slices.ContainsFunc(view.Mounts, func(m rootfs.Mount) bool { return m.Target == target }) {
			continue // it is only what something is mounted on
		}
		file := filepath.Join(b.dir, fmt.Sprintf("over-%d", len(b.over)))
		b.over[file] = view.Files[target]
		view.Mounts = append(view.Mounts, rootfs.Mount{Source: file, Target: target})
	}
	return view
}

// write makes the bundle. On an error the caller removes what is there.
func (b bundle) write(view rootfs.View, oci *specs.Spec) error {
	for _, d := range []string{b.dir, filepath.Join(b.dir, emptyRoot), b.scratch} {
		if err := os.Mkdir(d, 0o700); err != nil {
			return fmt.Errorf("making the bundle: %w", err)
		}
	}
	if err := os.WriteFile(b.empty, nil, 0o444); err != nil {
		return fmt.Errorf("making the bundle: %w", err)
	}
	for path, content := range b.over {
		if err := os.WriteFile(path, content, 0o444); err != nil {
			return fmt.Errorf("making the bundle: %w", err)
		}
	}
	if filepath.Dir(b.root) == b.dir {
		if err := writeSkeleton(b.root, view); err != nil {
			return fmt.Errorf("making the root file system %s: %w", b.root, err)
		}
	}
	data, err := json.Marshal(oci)
	if err != nil {
		return fmt.Errorf("making the bundle: %w", err)
	}
	if err := os.WriteFile(filepath.Join(b.dir, "config.json"), data, 0o600); err != nil {
		return fmt.Errorf("making the bundle: %w", err)
	}
	return nil
}

// emptyRoot is the directory that an OCI bundle has to name as its root. It stays
// empty: the root is the skeleton.
const emptyRoot = "rootfs"

// writeSkeleton writes the directories, links and files of the view, and what the wall
// needs beside them.
func writeSkeleton(path string, view rootfs.View) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	image := erofs.New(f, erofs.Options{Time: time.Now()})
	if err = fillSkeleton(image, view); err == nil {
		err = image.Close()
	}
	return errors.Join(err, f.Close())
}

func fillSkeleton(image *erofs.Writer, view rootfs.View) error {
	inside := func(path string) string { return strings.TrimPrefix(path, "/") }
	dirs := append(slices.Clone(view.Dirs), rootfs.Dir{Path: insidePrivate, Mode: 0o700},
		rootfs.Dir{Path: insideBase, Mode: 0o700}, rootfs.Dir{Path: insideScratch, Mode: 0o700})
	for _, d := range dirs {
		if d.Path == filepath.Dir(terrarium.StomaInside) {
			d.Mode = 0o711 // the Sprout may enter it and execute the Stoma, as probes do
		}
		if err := image.Dir(inside(d.Path), erofs.Attr{Perm: d.Mode}); err != nil {
			return err
		}
	}
	for _, path := range slices.Sorted(maps.Keys(view.Links)) {
		if err := image.Symlink(inside(path), view.Links[path], erofs.Attr{}); err != nil {
			return err
		}
	}
	for _, path := range slices.Sorted(maps.Keys(view.Files)) {
		if _, err := image.File(inside(path), erofs.Attr{Perm: 0o644}, bytes.NewReader(view.Files[path])); err != nil {
			return err
		}
	}
	return nil
}

func listenFlags(listeners []terrarium.Listener) []string {
	var flags []string
	for _, l := range listeners {
		flags = append(flags, "--listen", l.String())
	}
	return flags
}

func ociSpec(spec terrarium.Spec, view rootfs.View, b bundle, stomaPath string, applied confine.Limits) *specs.Spec {
	user := fmt.Sprintf("%d:%d", applied.User.UID, applied.User.GID)
	return &specs.Spec{
		Version:  "1.2.0",
		Hostname: rootfs.Hostname,
		Root:     &specs.Root{Path: emptyRoot, Readonly: !spec.WritableRoot},
		Process: &specs.Process{
			User: specs.User{UID: 0, GID: 0},
			Args: slices.Concat([]string{terrarium.StomaInside, "init", "--user", user,
				"--overlay", insideBase + ":" + insideScratch + ":" + workspace,
				"--own-dev", "--own-root", "--writable", "/tmp", "--writable", "/home/sprout", "--pids", fmt.Sprint(applied.Pids)},
				listenFlags(spec.Listeners)),
			Cwd: "/",
			Env: []string{},
			Capabilities: &specs.LinuxCapabilities{
				Inheritable: stomaCapabilities, Effective: stomaCapabilities, Permitted: stomaCapabilities,
			},
			NoNewPrivileges: true,
			Rlimits: []specs.POSIXRlimit{
				{Type: "RLIMIT_CORE", Hard: 0, Soft: 0},
				{Type: "RLIMIT_NOFILE", Hard: 65536, Soft: 65536},
			},
		},
		Mounts:      mounts(view, spec, b, stomaPath, applied),
		Annotations: hints(b, applied),
		Linux: &specs.Linux{
			Namespaces: []specs.LinuxNamespace{
				{Type: specs.PIDNamespace}, {Type: specs.IPCNamespace}, {Type: specs.UTSNamespace},
				{Type: specs.MountNamespace}, {Type: specs.NetworkNamespace}, {Type: specs.CgroupNamespace},
			},
		},
	}
}

func mounts(view rootfs.View, spec terrarium.Spec, b bundle, stomaPath string, applied confine.Limits) []specs.Mount {
	list := []specs.Mount{
		{Destination: "/proc", Type: "proc", Source: "proc", Options: []string{"nosuid", "noexec", "nodev"}},
		{Destination: "/dev", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "noexec", "mode=755", "size=" + deviceSize}},
		{Destination: "/dev/shm", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "nodev", "noexec", "mode=1777", "size=" + sharedMemorySize}},
	}
	for _, m := range view.Mounts {
		list = append(list, specs.Mount{Destination: m.Target, Type: "bind", Source: m.Source, Options: []string{"rbind", "ro", "nosuid", "nodev"}})
	}
	for _, mask := range view.Masks {
		if mask.Dir {
			list = append(list, specs.Mount{Destination: mask.Path, Type: "tmpfs", Source: "tmpfs", Options: []string{"ro", "nosuid", "nodev", "noexec", "size=4k", "mode=555"}})
		} else {
			list = append(list, specs.Mount{Destination: mask.Path, Type: "bind", Source: b.empty, Options: []string{"bind", "ro", "nosuid", "nodev", "noexec"}})
		}
	}
	return append(list,
		specs.Mount{Destination: terrarium.StomaInside, Type: "bind", Source: stomaPath, Options: []string{"bind", "ro", "nosuid", "nodev"}},
		specs.Mount{Destination: insideBase, Type: "erofs", Source: spec.Workspace.Image, Options: []string{"ro", "nosuid", "nodev"}},
		specs.Mount{Destination: insideScratch, Type: "bind", Source: b.scratch, Options: []string{"rw", "nosuid", "nodev"}},
	)
}

// hints makes the skeleton the root, and the scratch mount a tmpfs that lives in a file
// below b.scratch: the data is on the disk, not in memory, and its size is bounded by
// the sentry. Nothing but that file is ever created in the directory.
func hints(b bundle, applied confine.Limits) map[string]string {
	const root, scratch = "dev.gvisor.spec.rootfs.", "dev.gvisor.spec.mount.scratch."
	return map[string]string{
		root + "source":     b.root,
		root + "type":       "erofs",
		scratch + "source":  b.scratch,
		scratch + "type":    "tmpfs",
		scratch + "share":   "container",
		scratch + "options": fmt.Sprintf("rw,nosuid,nodev,size=%d,mode=755", applied.Disk),
	}
}
