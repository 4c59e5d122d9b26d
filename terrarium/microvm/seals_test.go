//go:build linux

package microvm

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"tendril/fault"
	"tendril/probe"
	"tendril/stoma"
	"tendril/terrarium"
	"tendril/terrarium/confine"
	"tendril/terrarium/microvm/jail"
	"tendril/terrarium/terrariumtest"
)

// tampered is the wall with one thing changed of what a Terrarium is made of.
type tampered struct {
	*provider
	blueprint func(*blueprint)
	launch    func(*testing.T, *launch)
	t         *testing.T
}

func (p tampered) Open(ctx context.Context, spec terrarium.Spec) (terrarium.Terrarium, error) {
	b, err := p.draw(spec)
	if err != nil {
		return nil, err
	}
	if p.blueprint != nil {
		p.blueprint(&b)
	}
	changed := &provider{Config: p.Config, machine: tamperedMachine{p.machine, p}}
	opened, err := changed.build(ctx, b)
	if err != nil {
		return nil, err // not an open that is nil
	}
	return opened, nil
}

type tamperedMachine struct {
	machine
	tampered tampered
}

func (m tamperedMachine) prepare(p plan) (*launch, error) {
	l, err := m.machine.prepare(p)
	if err == nil && m.tampered.launch != nil {
		m.tampered.launch(m.tampered.t, l)
	}
	return l, err
}

// argument changes the Stoma's arguments: one and so many values of it make place for
// others.
func argument(name string, values int, instead ...string) func(*blueprint) {
	return func(b *blueprint) {
		i := slices.Index(b.files.args, name)
		b.files.args = slices.Concat(b.files.args[:i], instead, b.files.args[i+1+values:])
	}
}

// emulator changes the emulator's arguments.
func emulator(change func([]string) []string) func(*testing.T, *launch) {
	return func(_ *testing.T, l *launch) { l.order.Args = change(slices.Clone(l.order.Args)) }
}

// pass hands the emulator one more file.
func pass(path func(*launch) string, flag int) func(*testing.T, *launch) {
	return func(t *testing.T, l *launch) {
		f, err := os.OpenFile(path(l), flag, 0)
		if err != nil {
			t.Fatal(err)
		}
		l.passed = append(l.passed, f)
		l.order.FDs++
	}
}

func show(source string, writable bool) func(*testing.T, *launch) {
	return func(_ *testing.T, l *launch) {
		l.order.Shown = append(l.order.Shown, jail.Shown{Source: source, Target: source, Writable: writable})
	}
}

// TestEachSealIsNeeded removes one seal at a time. Each time the wall has to refuse to
// start, say which seal it was, and leave nothing.
func TestEachSealIsNeeded(t *testing.T) {
	p := emulated(t)
	secret := filepath.Join(shared.dir, "secret")
	if err := os.MkdirAll(secret, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name      string
		blueprint func(*blueprint)
		launch    func(*testing.T, *launch)
		names     string // what the refusal has to say
	}{
		{"its filter of system calls", nil, emulator(func(args []string) []string {
			i := slices.Index(args, "-sandbox")
			return slices.Delete(args, i, i+2)
		}), "without a seccomp filter"},
		{"a weaker filter", nil, emulator(func(args []string) []string {
			args[slices.Index(args, "-sandbox")+1] = "on,spawn=deny"
			return args
		}), "command line"},
		{"a network", nil, emulator(func(args []string) []string {
			return append(args, "-netdev", "user,id=out", "-device", "virtio-net-device,netdev=out")
		}), "command line"},
		{"a monitor", nil, emulator(func(args []string) []string { return append(args, "-monitor", "tcp:127.0.0.1:0,server=on,wait=off") }), "command line"},
		{"more memory", nil, emulator(func(args []string) []string {
			args[slices.Index(args, "-m")+1] = "size=512M"
			return args
		}), "command line"},
		{"an account of its own", nil, func(_ *testing.T, l *launch) { l.order.UID = 0 }, "runs as host uid 0"},
		{"a directory of the host", nil, show(secret, false), "sees " + secret},
		{"a writable directory of the host", nil, show(secret, true), secret},
		{"a writable library", nil, func(_ *testing.T, l *launch) {
			i := slices.IndexFunc(l.order.Shown, func(s jail.Shown) bool { return s.Target == "/usr/lib" })
			l.order.Shown[i].Writable = true
		}, "could write to /usr/lib"},
		{"a device of the host", nil, func(_ *testing.T, l *launch) { l.order.Devices = append(l.order.Devices, "/dev/null") }, "sees /dev"},
		{"a file of the host", nil, pass(func(*launch) string { return "/etc/passwd" }, os.O_RDONLY), `has "/etc/passwd" open`},
		{"a writable base", nil, pass(func(l *launch) string { return l.passed[2].Name() }, os.O_RDWR), "has the drive base open for writing"},

		{"another account for the Sprout", argument("--user", 1, "--user", "1:1"), nil, "seal user"},
		{"no limit of processes", argument("--pids", 1), nil, "Pids"},
		{"another limit of processes", argument("--pids", 1, "--pids", "100000"), nil, "Pids"},
		{"user namespaces", argument("--own-root", 0), nil, "--machine needs --overlay and --own-root"},
		{"what a machine closes", argument("--machine", 0), nil, "not those of a machine"},
		{"another limit of memory", func(b *blueprint) { b.limits.Memory *= 2 }, nil, "Memory"},
		{"another limit of the disk", func(b *blueprint) { b.limits.Disk *= 2 }, nil, "Disk"},
	} {
		t.Run(strings.ReplaceAll(c.name, " ", "-"), func(t *testing.T) {
			if confine.Rootless() && (c.name == "an account of its own" || c.launch == nil) {
				t.Skip("an ordinary user has one account, and the inside is the same for it")
			}
			spec := specFor(t, "unsealed")
			opened, err := terrarium.Validated(tampered{p, c.blueprint, c.launch, t}).Open(t.Context(), spec)
			if err == nil {
				closed(t, opened)
				t.Fatal("a Terrarium without this seal was opened")
			}
			t.Log(err)
			if !fault.Is(err, fault.BrokenBoundary) || !strings.Contains(err.Error(), c.names) {
				t.Errorf("refused as %s, and not because of %q: %v", fault.KindOf(err), c.names, err)
			}
			terrariumtest.LeavesNothing(t, spec, "after the refusal")
		})
	}
}

// TestGuestSealsAreMissed leaves a seal inside open, by another build of the Stoma, and
// wants exactly the probes of that seal to see it.
func TestGuestSealsAreMissed(t *testing.T) {
	for seal, c := range map[string]struct {
		missed []string
		ids    string // of the probes that see it at least
	}{
		"filter":  {[]string{probe.KernelSurface}, "K04 K14 K34"},
		"devices": {[]string{probe.Devices}, "F17"},
		"proc":    {[]string{probe.Devices}, "F09"},
	} {
		t.Run(seal, func(t *testing.T) {
			p := emulated(t)
			program := filepath.Join(t.TempDir(), "stoma")
			build(t, program, "tendril/cmd/stoma", "-X tendril/stoma/guest.testOnlyOpen="+seal)
			guest := copyGuest(t, p.Guest)
			open := &provider{Config: Config{Program: p.Program, Stoma: program, Guest: guest}, machine: p.machine}
			box, err := open.Open(t.Context(), specFor(t, "open"))
			if err != nil {
				t.Fatal(err)
			}
			defer closed(t, box)
			leaks := probed(t, open, box)
			for id, p := range leaks {
				if !slices.Contains(c.missed, p.Seal) {
					t.Errorf("the probe %s of the seal %s leaks too", id, p.Seal)
				}
			}
			for id := range strings.FieldsSeq(c.ids) {
				if _, ok := leaks[id]; !ok {
					t.Errorf("the probe %s does not see it; those that do are %v", id, leaks)
				}
			}
		})
	}
}

// probed returns the probes that leak, but for those that use something up.
func probed(t *testing.T, p *provider, box terrarium.Terrarium) map[string]probe.Probe {
	t.Helper()
	argv := []string{terrarium.StomaInside, "probe"}
	for _, candidate := range probe.All() {
		if !candidate.Stress && slices.Contains(p.Capabilities().Seals, candidate.Seal) {
			argv = append(argv, candidate.ID)
		}
	}
	spec := box.(*open).spec
	process, err := box.Stoma().Exec(t.Context(), stoma.ExecRequest{Argv: argv, Env: terrarium.ProbeEnv(spec, box.Boundary()), Dir: "/workspace"})
	if err != nil {
		t.Fatal(err)
	}
	defer process.Close()
	var out bytes.Buffer
	if _, err := out.ReadFrom(process.Stdout); err != nil {
		t.Fatal(err)
	}
	leaks := map[string]probe.Probe{}
	for line := range bytes.Lines(out.Bytes()) {
		r, err := probe.Parse(line)
		if err != nil {
			t.Fatal(err)
		}
		if found, ok := probe.Find(r.ID); ok && r.Status == probe.Leak {
			leaks[r.ID] = found
		}
	}
	return leaks
}
