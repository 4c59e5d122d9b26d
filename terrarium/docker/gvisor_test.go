//go:build linux

package docker

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"tendril/fault"
	"tendril/terrarium/docker/dockertest"
	"tendril/terrarium/docker/registration"
)

// TestRuntimeIsTried: what is registered under the name of gVisor counts only if a container
// of it is gVisor, with the settings that the wall rests on; and that is remembered.
func TestRuntimeIsTried(t *testing.T) {
	shared, _ := onOwnDaemon(t, gvisor)
	for runtime, says := range map[string]string{dockertest.BareRuntime: "runs gVisor with", dockertest.FalseRuntime: "instead of boot"} {
		k := gvisor
		k.runtime = runtime
		p := newProvider(Config{Host: shared.Host, Stoma: shared.Stoma, Site: site, Store: t.TempDir()}, k)
		if s, err := shared.supports(t.Context()); err != nil || !slices.Contains(s.runtimes, runtime) {
			t.Skipf("the tests' daemon has no runtime %s (%v)", runtime, err)
		}
		var f *fault.Error
		if err := p.Ready(within(t)); !errors.As(err, &f) || f.Kind != fault.Unavailable || !strings.Contains(f.Detail, says) || !strings.Contains(f.Hint, "setup gvisor") {
			t.Errorf("%s: %v", runtime, err)
		}
	}
	store := t.TempDir()
	for range 2 {
		p := newProvider(Config{Host: shared.Host, Stoma: shared.Stoma, Site: site, Store: store}, gvisor)
		if err := p.Ready(within(t)); err != nil {
			t.Fatal(err)
		}
		s, err := p.supports(t.Context())
		if err != nil || !p.remembers(s.instance) || p.remembers(s.instance+"x") {
			t.Errorf("what was tried is not remembered (%v)", err)
		}
	}
	found, err := shared.daemon.labelled(t.Context(), nil)
	if err != nil || len(found) != 0 {
		t.Errorf("%d containers are left of trying (%v)", len(found), err)
	}
}

func TestCompareSettings(t *testing.T) {
	line := append(append([]string{"runsc-sandbox"}, registration.Args...), "boot", "--network=host")
	if err := compareSettings(line); err != nil {
		t.Errorf("what follows the command is not a setting: %v", err)
	}
	for _, name := range sealing {
		i := slices.IndexFunc(line, func(arg string) bool { return strings.HasPrefix(arg, "--"+name+"=") })
		if i < 0 {
			t.Fatalf("%s is no setting of the registration", name)
		}
		for _, other := range []string{"--" + name + "=other", "--" + name, "-" + name + "="} {
			if err := compareSettings(slices.Concat(line[:i], []string{other}, line[i+1:])); !fault.Is(err, fault.BrokenBoundary) || !strings.Contains(err.Error(), name) {
				t.Errorf("%s was answered with %v", other, err)
			}
		}
	}
	if err := compareSettings([]string{"runsc-gofer", "gofer"}); !fault.Is(err, fault.BrokenBoundary) {
		t.Errorf("what is no sandbox was answered with %v", err)
	}
}

func TestParseStatus(t *testing.T) {
	status, err := parseStatus("Name:\ta:b\nUid:\t1\t1\t1\t1\nCapEff:\t0000000000000000\nodd\n")
	if err != nil || status["Name"] != "a:b" || status["Uid"] != "1\t1\t1\t1" || len(status) != 3 {
		t.Errorf("%q, %v", status, err)
	}
	if _, err := parseStatus("CapEff:\t0\nCapEff:\t1\n"); !fault.Is(err, fault.BrokenBoundary) {
		t.Errorf("a line that is there twice: %v", err)
	}
}
