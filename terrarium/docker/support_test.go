//go:build linux

package docker

import (
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/moby/moby/api/types/system"
	"golang.org/x/sys/unix"
	"tendril/fault"
	"tendril/terrarium"
	"tendril/terrarium/terrariumtest"
)

// goodInfo is what a daemon says with which a wall can be made.
func goodInfo(t *testing.T) system.Info {
	var host unix.Utsname
	if err := unix.Uname(&host); err != nil {
		t.Fatal(err)
	}
	return system.Info{
		OSType: "linux", KernelVersion: unix.ByteSliceToString(host.Release[:]), CgroupDriver: "systemd",
		SecurityOptions: []string{"name=seccomp,profile=builtin", "name=cgroupns"},
		MemoryLimit:     true, SwapLimit: true, CPUCfsQuota: true, PidsLimit: true,
		Runtimes: map[string]system.RuntimeWithStatus{"runc": {}, "runsc": {}},
	}
}

// TestJudge: with what no boundary could be made is refused, and says what to do.
func TestJudge(t *testing.T) {
	p := newProvider(Config{Host: "unix:///nowhere"}, gvisor)
	if s, err := p.judge(goodInfo(t)); err != nil || s.userns || s.apparmor || s.rootless {
		t.Fatalf("%+v, %v", s, err)
	}
	for says, spoil := range map[string]func(*system.Info){
		"of windows":              func(i *system.Info) { i.OSType = "windows" },
		"another machine":         func(i *system.Info) { i.KernelVersion = "6.6.0-linuxkit" },
		"filters no system calls": func(i *system.Info) { i.SecurityOptions = []string{"name=apparmor"} },
		"no runtime runsc":        func(i *system.Info) { delete(i.Runtimes, "runsc") },
	} {
		info := goodInfo(t)
		spoil(&info)
		if _, err := p.judge(info); !fault.Is(err, fault.Unavailable) || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", says, err)
		}
	}
	info := goodInfo(t)
	info.SecurityOptions = append(info.SecurityOptions, "name=rootless", "name=apparmor")
	if s, err := p.judge(info); err != nil || !s.rootless || !s.userns || !s.apparmor {
		t.Errorf("%+v, %v", s, err)
	}
}

// TestUnkept: a limit that a daemon cannot keep is not asked of it, has a row that says why,
// and refuses whoever needs it.
func TestUnkept(t *testing.T) {
	p := newProvider(Config{Host: "unix:///nowhere", Stoma: "/stoma", Site: "s"}, runc)
	for limit, c := range map[terrarium.LimitName]struct {
		support support
		field   string
		says    string
	}{
		terrarium.LimitMemory: {support{memory: true, cpus: true, pids: true}, "Memory", "swap"},
		terrarium.LimitCPU:    {support{memory: true, swap: true, pids: true}, "CPUs", "controller for cpu"},
		terrarium.LimitPids:   {support{memory: true, swap: true, cpus: true, rootless: true}, "Pids", "delegated"},
	} {
		spec := terrariumtest.HostSpec(t, "unkept")
		spec.Memory = terrarium.Limit[int64]{Value: 1 << 30, Required: limit == terrarium.LimitMemory}
		spec.CPUs = terrarium.Limit[float64]{Value: 1, Required: limit == terrarium.LimitCPU}
		spec.Pids = terrarium.Limit[int]{Value: 99, Required: limit == terrarium.LimitPids}
		b, err := p.draw(spec, c.support)
		if err != nil {
			t.Fatal(err)
		}
		asked := map[terrarium.LimitName]bool{
			terrarium.LimitMemory: b.host.Memory > 0, terrarium.LimitCPU: b.host.NanoCPUs > 0, terrarium.LimitPids: b.host.PidsLimit != nil,
		}
		for name, is := range asked {
			if is == (name == limit) {
				t.Errorf("without %s, %s is asked for: %v", limit, name, is)
			}
		}
		rows := (&open{provider: p, print: b, id: "id"}).Boundary()
		err = terrarium.Verify("docker", p.Capabilities(), spec, rows)
		if !fault.Is(err, fault.Unavailable) || !strings.Contains(err.Error(), c.field) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s is needed and not kept: %v", c.field, err)
		}
	}
}

// TestWhatDoesNotFit: the workspace is in memory, so a disk that memory does not hold is
// refused by name.
func TestWhatDoesNotFit(t *testing.T) {
	for says, change := range map[string]func(*terrarium.Spec){
		"disk limit of 1073741824 bytes and the base's": func(s *terrarium.Spec) { s.Memory.Value, s.Disk.Value = 512<<20, 1<<30 },
		"too small for a container":                     func(s *terrarium.Spec) { s.Pids.Value = 8 },
		"no room for a workspace": func(s *terrarium.Spec) {
			s.Memory.Value = 64 << 20
			if err := os.Truncate(s.Workspace.Image, 64<<20); err != nil {
				t.Fatal(err)
			}
		},
	} {
		spec := terrariumtest.HostSpec(t, "large")
		change(&spec)
		var f *fault.Error
		if _, _, err := limitsOf(spec); !errors.As(err, &f) || f.Kind != fault.Invalid || !strings.Contains(f.Detail, says) || f.Hint == "" {
			t.Errorf("%s: %v", says, err)
		}
	}
	spec := terrariumtest.HostSpec(t, "default")
	spec.Memory.Value = 1 << 30
	if l, base, err := limitsOf(spec); err != nil || l.Disk+base > l.Memory {
		t.Errorf("without a limit the disk is %+v beside a base of %d (%v)", l, base, err)
	}
}

// TestOldOrClosed: a daemon that is too old, and a socket that is closed to this account.
func TestOldOrClosed(t *testing.T) {
	for name, c := range map[string]struct {
		version string
		mode    os.FileMode
		says    string
		hint    string
	}{
		"too old":        {"1.40", 0o600, "1.41 is needed", "Docker 20.10"},
		"much too old":   {"1.24", 0o600, "1.24", "Docker 20.10"},
		"no version":     {"", 0o600, "is no Docker daemon", "DOCKER_HOST"},
		"not for us all": {"1.41", 0o000, "permission denied", "group docker"},
	} {
		if c.mode == 0 && os.Getuid() == 0 {
			continue // root is refused nothing
		}
		dir, err := os.MkdirTemp("", "tendril-old-")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.RemoveAll(dir) })
		socket := filepath.Join(dir, "s")
		listener, err := net.Listen("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Api-Version", c.version)
			w.Header().Set("Ostype", "linux")
		})}
		go server.Serve(listener)
		t.Cleanup(func() { server.Close() })
		if err := os.Chmod(socket, c.mode); err != nil {
			t.Fatal(err)
		}
		var f *fault.Error
		_, err = newProvider(Config{Host: "unix://" + socket}, runc).supports(t.Context())
		if !errors.As(err, &f) || f.Kind != fault.Unavailable || !strings.Contains(f.Detail, c.says) || !strings.Contains(f.Hint, c.hint) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
