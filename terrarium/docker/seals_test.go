//go:build linux

package docker

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/mount"
	"tendril/fault"
	"tendril/probe"
	"tendril/terrarium"
	"tendril/terrarium/confine"
	"tendril/terrarium/terrariumtest"
)

// tampered is a wall with one thing of its blueprint changed.
type tampered struct {
	*provider
	change func(*blueprint)
}

func (p tampered) Open(ctx context.Context, spec terrarium.Spec) (terrarium.Terrarium, error) {
	b, err := p.blueprint(ctx, spec)
	if err != nil {
		return nil, err
	}
	p.change(&b)
	return p.build(ctx, b)
}

func (p *provider) blueprint(ctx context.Context, spec terrarium.Spec) (blueprint, error) {
	s, err := p.supports(ctx)
	if err != nil {
		return blueprint{}, err
	}
	return p.draw(spec, s)
}

// bind shows something of the host's, which nobody asked for.
func bind(source, target string, readonly bool) func(*blueprint) {
	return func(b *blueprint) {
		b.host.Mounts = append(b.host.Mounts, mount.Mount{Type: mount.TypeBind, Source: source, Target: target, ReadOnly: readonly})
	}
}

// unsealed are ways to take a seal off. Without the refusal only probes of those seals fail.
var unsealed = []struct {
	name   string
	change func(*blueprint)
	names  string   // what the refusal says; "": the Stoma and the self-test can do without it
	seals  []string // that have no wall any more; at least the first one is seen to leak
}{
	{"privileged", func(b *blueprint) { b.host.Privileged = true }, "HostConfig.SecurityOpt",
		[]string{probe.Capabilities, probe.Devices, probe.KernelSurface, probe.RootReadonly, probe.User}},
	{"a capability", func(b *blueprint) { b.host.CapAdd = []string{"CAP_SYS_ADMIN"} }, "bounding set", []string{probe.Capabilities, probe.KernelSurface, probe.User}},
	{"all of Docker's capabilities", func(b *blueprint) { b.host.CapDrop = nil }, "bounding set", []string{probe.Capabilities}},
	{"the host's network", func(b *blueprint) {
		b.host.NetworkMode = "host"
		b.config.Hostname, _ = os.Hostname() // the daemon takes this one then
	}, "Networks", []string{probe.Network}},
	{"the daemon's socket", nil, "/run/docker.sock", []string{probe.HostFiles}},
	{"the host's processes", func(b *blueprint) { b.host.PidMode = "host" }, "HostConfig.SecurityOpt", []string{probe.Processes, probe.PID1, probe.Descriptors}},
	{"no filter", func(b *blueprint) { b.host.SecurityOpt = []string{"no-new-privileges:true", "seccomp=unconfined"} }, "Seccomp",
		[]string{probe.KernelSurface, probe.User, probe.Capabilities}},
	{"Docker's own filter", func(b *blueprint) { b.host.SecurityOpt = []string{"no-new-privileges:true"} }, "K31", []string{probe.KernelSurface}},
	{"new privileges", func(b *blueprint) {
		b.host.SecurityOpt = slices.DeleteFunc(b.host.SecurityOpt, func(o string) bool { return strings.HasPrefix(o, "no-new") })
	}, "", []string{probe.User}},
	{"a writable root", func(b *blueprint) { b.host.ReadonlyRootfs = false }, "mount /", []string{probe.RootReadonly}},
	{"root for everybody", func(b *blueprint) { b.config.User = "0:0" }, "supplementary groups", []string{probe.User, probe.RootReadonly, probe.HostFiles, probe.Processes, probe.Descriptors, probe.Devices, probe.PID1}},
	{"a device", func(b *blueprint) {
		b.host.Devices = []container.DeviceMapping{{PathOnHost: "/dev/urandom", PathInContainer: "/dev/vda", CgroupPermissions: "rwm"}}
	}, "seal devices", []string{probe.Devices}},
	{"a directory of the host", nil, "/srv", []string{probe.HostFiles}},
	{"a variable", func(b *blueprint) { b.config.Env = []string{"API_TOKEN=x"} }, "", []string{probe.Environment}},
	{"scratch without a size", func(b *blueprint) {
		b.host.Tmpfs["/tmp"] = "rw,exec,nosuid,nodev,size=1000g,mode=1777"
	}, "size of /tmp", []string{probe.Limits}},
	{"core files", func(b *blueprint) { b.host.Ulimits = b.host.Ulimits[1:] }, "core files", nil},
	{"unhidden paths", func(b *blueprint) { b.host.MaskedPaths = []string{} }, "", []string{probe.Devices, probe.KernelSurface}},
}

// TestEachSealIsNeeded removes one seal at a time. Each time the wall has to refuse and
// leave nothing. With the refusal out of the way, which is this test's doing alone, probes
// of that seal fail and no others.
func TestEachSealIsNeeded(t *testing.T) {
	p := wall(t, runc)
	sealed := p.probed(t, func(*blueprint) {})
	for id, r := range sealed {
		if found, _ := probe.Find(id); r.Status == probe.Leak && slices.Contains(p.kind.seals, found.Seal) && !slices.Contains(ofThemselves, id) {
			t.Errorf("with all seals on, %s leaks: %s", id, r.Detail)
		}
	}
	secret := t.TempDir()
	if err := os.WriteFile(filepath.Join(secret, "key"), []byte("secret\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range unsealed {
		switch c.name {
		case "the daemon's socket":
			c.change = bind(p.daemon.socket, "/run/docker.sock", false)
		case "a directory of the host":
			c.change = bind(secret, "/srv", false)
		}
		t.Run(strings.ReplaceAll(c.name, " ", "-"), func(t *testing.T) {
			spec := terrariumtest.HostSpec(t, "unsealed")
			opened, err := terrarium.Validated(tampered{p, c.change}).Open(t.Context(), spec)
			if err == nil {
				err := opened.Close(t.Context())
				t.Logf("opened (%v)", err)
			}
			t.Log(err)
			if c.names != "" && (!fault.Is(err, fault.BrokenBoundary) || !strings.Contains(err.Error(), c.names)) {
				t.Errorf("refused as %s, not as a broken boundary because of %q: %v", fault.KindOf(err), c.names, err)
			}
			terrariumtest.LeavesNothing(t, spec, "after the refusal")
			leaks := map[string]bool{}
			for id, r := range p.probed(t, c.change) {
				found, _ := probe.Find(id)
				if r.Status != probe.Leak || sealed[id].Status == probe.Leak {
					continue
				}
				t.Logf("%s (seal %s) leaks: %s", id, found.Seal, r.Detail)
				leaks[found.Seal] = true
				if !slices.Contains(c.seals, found.Seal) {
					t.Errorf("%s of the seal %s fails: %s", id, found.Seal, r.Detail)
				}
			}
			if len(c.seals) > 0 && !leaks[c.seals[0]] {
				t.Errorf("no probe of the seal %s fails", c.seals[0])
			}
		})
	}
}

// ofThemselves look at PID 1, which they are here.
var ofThemselves = []string{"F05", "F11", "P02"}

// probed runs all probes as the only command of a container, without a Stoma that would
// refuse to work in it. So nothing is said of PID 1, which the probes are themselves.
func (p *provider) probed(t *testing.T, change func(*blueprint)) map[string]probe.Result {
	t.Helper()
	ctx := t.Context()
	b, err := p.blueprint(ctx, terrariumtest.HostSpec(t, "probed"))
	if err != nil {
		t.Fatal(err)
	}
	b.config.Cmd = []string{"probe"}
	for _, found := range probe.All() {
		if !found.Stress {
			b.config.Cmd = append(b.config.Cmd, found.ID)
		}
	}
	b.config.Env = []string{"PATH=/usr/bin:/bin", "HOME=/home/sprout", "TMPDIR=/tmp"}
	change(&b)
	if err := writeFiles(b); err != nil {
		t.Fatal(err)
	}
	id, err := p.create(ctx, b)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := p.end(context.WithoutCancel(ctx), id); err != nil {
			t.Error(err)
		}
	}()
	conn, out, err := p.daemon.attach(ctx, id)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	c := &carrier{conn: conn, out: out, stderr: &confine.Tail{}}
	if err := p.daemon.start(ctx, id); err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(c)
	if err != nil {
		t.Fatal(err)
	}
	results := map[string]probe.Result{}
	for line := range bytes.Lines(text) {
		r, err := probe.Parse(line)
		if err != nil {
			t.Fatal(err)
		}
		results[r.ID] = r
	}
	if len(results) < len(b.config.Cmd)-1 {
		t.Fatalf("%d of %d probes answered: %s", len(results), len(b.config.Cmd)-1, c.stderr)
	}
	return results
}
