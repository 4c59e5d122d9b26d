//go:build linux

package runsc

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"tendril/rootfs"
	"tendril/terrarium"
)

// Where things are inside. The private directory is root's alone: the Sprout
// meets what is mounted there only through /workspace, /tmp and its home.
const (
	insidePrivate = "/.tendril/private"
	insideBase    = insidePrivate + "/base"
	insideScratch = insidePrivate + "/scratch"
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

// bundle is the directory that gVisor reads: the specification and the skeleton
// of the root file system.
type bundle struct {
	dir     string
	scratch string // holds the file that backs the scratch file system
	empty   string // an empty file, shown where a file of the host must not be
}

// bundleBelow names the parts of a bundle in dir.
func bundleBelow(dir string) bundle {
	return bundle{dir: filepath.Join(dir, "bundle"), scratch: filepath.Join(dir, "scratch"), empty: filepath.Join(dir, "bundle", "empty")}
}

// write makes the bundle. On an error the caller removes what is there.
func (b bundle) write(view rootfs.View, oci *specs.Spec) error {
	root := filepath.Join(b.dir, "rootfs")
	for _, d := range []string{b.dir, root, b.scratch} {
		if err := os.Mkdir(d, 0o700); err != nil {
			return fmt.Errorf("making the bundle: %w", err)
		}
	}
	if err := os.WriteFile(b.empty, nil, 0o444); err != nil {
		return fmt.Errorf("making the bundle: %w", err)
	}
	if err := view.Build(root); err != nil {
		return fmt.Errorf("making the root file system in %s: %w", root, err)
	}
	if err := addMountPoints(root); err != nil {
		return fmt.Errorf("making the root file system in %s: %w", root, err)
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

// addMountPoints makes what the wall needs beside the view. The root is opened
// beneath an os.Root: a view is data, and data must not lead elsewhere.
func addMountPoints(path string) error {
	root, err := os.OpenRoot(path)
	if err != nil {
		return err
	}
	defer root.Close()
	private := strings.TrimPrefix(insidePrivate, "/")
	for _, dir := range []string{private, private + "/base", private + "/scratch"} {
		if err := root.Mkdir(dir, 0o700); err != nil {
			return err
		}
	}
	// The Sprout may enter the directory and execute the Stoma, as probes do.
	return errors.Join(root.Chmod(".tendril", 0o711), root.Chmod(strings.TrimPrefix(terrarium.StomaInside, "/"), 0o555))
}

func ociSpec(spec terrarium.Spec, view rootfs.View, b bundle, stomaPath string, applied limits) *specs.Spec {
	user := fmt.Sprintf("%d:%d", applied.user.UID, applied.user.GID)
	return &specs.Spec{
		Version:  "1.2.0",
		Hostname: rootfs.Hostname,
		Root:     &specs.Root{Path: "rootfs", Readonly: !spec.WritableRoot},
		Process: &specs.Process{
			User: specs.User{UID: 0, GID: 0},
			Args: []string{terrarium.StomaInside, "init", "--user", user,
				"--overlay", insideBase + ":" + insideScratch + ":" + workspace,
				"--own-dev", "--own-root", "--writable", "/tmp", "--writable", "/home/sprout", "--pids", fmt.Sprint(applied.pids)},
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
		Annotations: scratchHint(b, applied),
		Linux: &specs.Linux{
			Namespaces: []specs.LinuxNamespace{
				{Type: specs.PIDNamespace}, {Type: specs.IPCNamespace}, {Type: specs.UTSNamespace},
				{Type: specs.MountNamespace}, {Type: specs.NetworkNamespace}, {Type: specs.CgroupNamespace},
			},
		},
	}
}

func mounts(view rootfs.View, spec terrarium.Spec, b bundle, stomaPath string, applied limits) []specs.Mount {
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

// scratchHint makes the scratch mount a tmpfs that lives in a file below
// b.scratch: the data is on the disk, not in memory, and its size is bounded by
// the sentry. Nothing but that file is ever created in the directory.
func scratchHint(b bundle, applied limits) map[string]string {
	const prefix = "dev.gvisor.spec.mount.scratch."
	return map[string]string{
		prefix + "source":  b.scratch,
		prefix + "type":    "tmpfs",
		prefix + "share":   "container",
		prefix + "options": fmt.Sprintf("rw,nosuid,nodev,size=%d,mode=755", applied.disk),
	}
}
