//go:build linux

package runsc

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
	"tendril/fault"
	"tendril/rootfs"
	"tendril/stoma"
	"tendril/terrarium"
	"tendril/terrarium/confine"
	"tendril/terrarium/terrariumtest"
)

// tampered is the wall with one thing of its blueprint changed.
type tampered struct {
	*provider
	change func(*blueprint)
}

func (p tampered) Open(ctx context.Context, spec terrarium.Spec) (terrarium.Terrarium, error) {
	b, err := p.draw(spec)
	if err != nil {
		return nil, err
	}
	p.change(&b)
	return p.build(ctx, b)
}

// setting changes one of gVisor's settings.
func setting(name, value string) func(*blueprint) {
	return func(b *blueprint) { b.settings[name] = value }
}

// argument drops an argument of the Stoma, with so many values, or puts others in its
// place.
func argument(name string, values int, instead ...string) func(*blueprint) {
	return func(b *blueprint) {
		args := b.oci.Process.Args
		i := slices.Index(args, name)
		b.oci.Process.Args = slices.Concat(args[:i], instead, args[i+1+values:])
	}
}

// mount adds a mount of a directory or file of the host.
func mount(source, target string, options ...string) func(*blueprint) {
	return func(b *blueprint) {
		b.view.Dirs = append(b.view.Dirs, rootfs.Dir{Path: target, Mode: 0o755})
		b.oci.Mounts = append(b.oci.Mounts, specs.Mount{Destination: target, Type: "bind", Source: source, Options: append([]string{"bind"}, options...)})
	}
}

// TestEachSealIsNeeded removes one seal at a time. Each time the wall has to refuse to
// start, say which seal it was, and leave nothing.
func TestEachSealIsNeeded(t *testing.T) {
	secret := t.TempDir()
	if err := os.WriteFile(filepath.Join(secret, "key"), []byte("secret\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	anotherDirectfs := "true"
	if confine.Rootless() {
		anotherDirectfs = "false"
	}
	for _, c := range []struct {
		name   string
		change func(*blueprint)
		names  string // what the refusal has to say
	}{
		{"the host's network", setting("network", "host"), "network"},
		{"a network stack", setting("network", "sandbox"), "network"},
		{"the gofer's network", setting("gofer-network-namespace", "host"), "net namespace"},
		{"sockets of the host", setting("host-uds", "all"), "host-uds"},
		{"pipes of the host", setting("host-fifo", "open"), "host-fifo"},
		{"raw sockets", setting("net-raw", "true"), "net-raw"},
		{"devices of the host", setting("character-device-policy", "passthrough"), "character-device-policy"},
		{"a writable layer in memory", setting("overlay2", "all:memory"), "overlay2"},
		{"the sentry's access to files", setting("directfs", anotherDirectfs), "directfs"},
		{"set-user-id programs", setting("allow-suid", "true"), "allow-suid"},
		{"settings from the bundle", setting("allow-flag-override", "true"), "allow-flag-override"},
		{"a debug interface", setting("profile", "true"), "profile"},
		{"another platform", setting("platform", "ptrace"), "platform"},

		{"a writable root", func(b *blueprint) { b.oci.Root.Readonly = false }, "seal root-readonly"},
		{"a directory of the host as root", func(b *blueprint) {
			maps.DeleteFunc(b.oci.Annotations, func(name, _ string) bool { return strings.Contains(name, "rootfs") })
			b.oci.Root.Path = directoryRoot(t, b.view)
		}, "shows /,"},
		{"a writable toolchain", func(b *blueprint) { remount(b, "/usr", "rw") }, "/usr is writable"},
		{"another toolchain", func(b *blueprint) { resource(b, "/usr", secret) }, "something else than /usr"},
		{"a writable Stoma", func(b *blueprint) { remount(b, terrarium.StomaInside, "rw") }, "/.tendril/stoma is writable"},
		{"a writable directory of the host", mount(secret, "/srv", "rw"), "/srv"},
		{"a directory of the host", mount(secret, "/srv", "ro"), "/srv"},
		{"a home directory", mount(secret, "/home/gardener", "ro"), "/home/gardener"},
		{"a credential that is not hidden", func(b *blueprint) {
			b.view.Masks = append(b.view.Masks, rootfs.Mask{Path: "/usr/bin/env"})
		}, "does not mount /usr/bin/env"},
		{"a file of the host", func(b *blueprint) {
			b.view.Files["/etc/shadow"] = []byte("root:*:1::::::\n")
		}, "host-files"},

		{"a capability that can come back", func(b *blueprint) {
			b.oci.Process.Capabilities.Bounding = []string{"CAP_SYS_PTRACE"}
		}, "bounding set"},
		{"root for the Sprout", argument("--user", 1, "--user", "0:0"), "-user"},
		{"another account for the Sprout", argument("--user", 1, "--user", "1:1"), "seal user"},
		{"gVisor's own devices", argument("--own-dev", 0), "seal devices"},
		{"user namespaces", argument("--own-root", 0), "seal user"},
		{"no limit of processes", argument("--pids", 1), "Pids"},
		{"another limit of processes", argument("--pids", 1, "--pids", "100000"), "Pids"},
		{"no limit of the disk", func(b *blueprint) {
			for name, value := range b.oci.Annotations {
				b.oci.Annotations[name] = strings.Replace(value, "size=", "mode=0755,uid=", 1)
			}
		}, "Disk"},
		{"no scratch", argument("--overlay", 1), "--pids"},
	} {
		t.Run(strings.ReplaceAll(c.name, " ", "-"), func(t *testing.T) {
			spec := terrariumtest.HostSpec(t, "unsealed")
			spec.Disk.Value = 64 << 20
			opened, err := terrarium.Validated(tampered{wall(t), c.change}).Open(t.Context(), spec)
			if err == nil {
				err := opened.Close(t.Context())
				t.Fatalf("a Terrarium without this seal was opened (%v)", err)
			}
			t.Log(err)
			if !fault.Is(err, fault.BrokenBoundary) || !strings.Contains(err.Error(), c.names) {
				t.Errorf("refused as %s, not as a broken boundary because of %q: %v", fault.KindOf(err), c.names, err)
			}
			terrariumtest.LeavesNothing(t, spec, "after the refusal")
		})
	}
}

// TestMaskedFileIsEmpty: what the view hides is there without its content.
func TestMaskedFileIsEmpty(t *testing.T) {
	const hidden = "/usr/bin/env" // stands for a file with a credential
	opened, err := terrarium.Validated(tampered{wall(t), func(b *blueprint) {
		b.view.Masks = append(b.view.Masks, rootfs.Mask{Path: hidden})
		b.oci.Mounts = mounts(b.view, b.spec, b.bundle, stomaOf(b), b.limits)
	}}).Open(t.Context(), terrariumtest.HostSpec(t, "mask"))
	if err != nil {
		t.Fatal(err)
	}
	defer opened.Close(context.Background())
	process, err := opened.Stoma().Exec(t.Context(), stoma.ExecRequest{Argv: []string{"/bin/sh", "-c", "test -e " + hidden + " && ! test -s " + hidden}})
	if err != nil {
		t.Fatal(err)
	}
	defer process.Close()
	if err := terrariumtest.Success(process.Wait(t.Context())); err != nil {
		t.Errorf("the hidden file is not an empty one: %v", err)
	}
}

// directoryRoot is the skeleton as a directory of the host.
func directoryRoot(t *testing.T, view rootfs.View) string {
	t.Helper()
	dir := t.TempDir()
	if err := view.Build(dir); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{insidePrivate, insideBase, insideScratch} {
		if err := os.Mkdir(dir+path, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(filepath.Dir(dir+terrarium.StomaInside), 0o711); err != nil {
		t.Fatal(err)
	}
	return dir
}

// stomaOf is where the blueprint takes the Stoma from.
func stomaOf(b *blueprint) string {
	for _, m := range b.oci.Mounts {
		if m.Destination == terrarium.StomaInside {
			return m.Source
		}
	}
	return ""
}

func remount(b *blueprint, target string, option string) {
	for i, m := range b.oci.Mounts {
		if m.Destination == target {
			b.oci.Mounts[i].Options = append(slices.DeleteFunc(m.Options, func(o string) bool { return o == "ro" }), option)
		}
	}
}

func resource(b *blueprint, target, source string) {
	for i, m := range b.oci.Mounts {
		if m.Destination == target {
			b.oci.Mounts[i].Source = source
		}
	}
}

// TestDiskBeyondMemory: scratch is a file on the disk, and may be larger than the memory of
// the machine.
func TestDiskBeyondMemory(t *testing.T) {
	var machine unix.Sysinfo_t
	if err := unix.Sysinfo(&machine); err != nil {
		t.Fatal(err)
	}
	spec := terrariumtest.HostSpec(t, "disk")
	spec.Disk = terrarium.Limit[int64]{Value: 2 * int64(machine.Totalram) * int64(machine.Unit)}
	opened, err := terrarium.Validated(wall(t)).Open(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	if err := opened.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestNothingIsInherited: what the Stem holds without knowing reaches neither the
// processes of the wall nor, through PID 1, the Sprout.
func TestNothingIsInherited(t *testing.T) {
	secret, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer secret.Close()
	// As if the Stem's own parent had left it open.
	if _, err := unix.FcntlInt(secret.Fd(), unix.F_SETFD, 0); err != nil {
		t.Fatal(err)
	}
	t.Setenv("CANARY", "of-the-caller")
	change := func(b *blueprint) {
		b.oci.Process.Env = []string{"CANARY=of-the-stoma"}
		caps := append(slices.Clone(stomaCapabilities), "CAP_NET_RAW", "CAP_SYS_PTRACE", "CAP_MKNOD")
		b.oci.Process.Capabilities = &specs.LinuxCapabilities{Effective: caps, Permitted: caps, Inheritable: caps, Ambient: caps}
		b.oci.Process.NoNewPrivileges = false
	}
	opened, err := terrarium.Validated(tampered{wall(t), change}).Open(t.Context(), terrariumtest.HostSpec(t, "inherit"))
	if err != nil {
		t.Fatal(err)
	}
	defer opened.Close(context.Background())
	want, err := secret.Stat()
	if err != nil {
		t.Fatal(err)
	}
	box := opened.(*open)
	for role, pid := range map[string]int{"keeper": box.process.cmd.Process.Pid, "sentry": box.process.sentry, "gofer": box.process.gofer} {
		held := 0
		dir := filepath.Join("/proc", strconv.Itoa(pid), "fd")
		fds, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, fd := range fds {
			if is, err := os.Stat(filepath.Join(dir, fd.Name())); err == nil && os.SameFile(is, want) {
				held++
			}
		}
		// The control: the keeper does get it, and passes it on to nobody.
		if (held > 0) != (role == "keeper") {
			t.Errorf("the %s holds the Stem's directory %d times", role, held)
		}
	}
	// The Stoma gives up what it was given, and what it was told stays with it.
	for what, script := range map[string]string{
		"PID 1 has more than SETUID, SETGID and KILL": `! grep -Eq '^Cap(Prm|Eff):\s*00000000000000e0$' /proc/1/status`,
		"PID 1 can get capabilities":                  `! grep -Eq '^CapBnd:\s*0+$' /proc/1/status`,
		"the Sprout has capabilities":                 `grep -E '^Cap' /proc/self/status | grep -qv '0000000000000000$'`,
		"the environment of PID 1 is open":            `grep -qa of-the /proc/1/environ`,
		"the environment of PID 1 is inherited":       `env | grep -q of-the`,
	} {
		process, err := opened.Stoma().Exec(t.Context(), stoma.ExecRequest{Argv: []string{"/bin/sh", "-c", script}, Env: []string{"PATH=/usr/bin:/bin"}})
		if err != nil {
			t.Fatal(err)
		}
		if exit, err := process.Wait(t.Context()); err != nil || exit.Code == nil || *exit.Code == 0 {
			t.Errorf("%s: %s ended with %+v, %v", what, script, exit, err)
		}
		process.Close()
	}
}
