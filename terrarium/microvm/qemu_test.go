//go:build linux

package microvm

import (
	"strings"
	"testing"

	"tendril/terrarium"
	"tendril/terrarium/terrariumtest"
)

// slow is how much longer an emulated machine takes than this host.
const slow = 12

func TestConformanceQEMU(t *testing.T) {
	p := emulated(t)
	terrariumtest.Run(t, func(*testing.T) terrarium.Provider { return p }, terrariumtest.Options{
		Image: terrariumtest.Debian, Slow: slow, Memory: smallest.Memory, Disk: smallest.Disk,
	})
}

func TestMachineRunsACommand(t *testing.T) {
	p := emulated(t)
	if err := p.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	spec := specFor(t, "command")
	box := opened(t, p, spec)
	if got := run(t, box.Stoma(), "uname", "-sr"); !strings.HasPrefix(got, "Linux ") {
		t.Errorf("uname says %q", got)
	}
	if got := run(t, box.Stoma(), "id", "-u"); got != "70707\n" {
		t.Errorf("the account is %q", got)
	}
	for _, row := range box.Boundary() {
		t.Logf("%s: asked %q, applied %q, %s by %s: %s", row.Field, row.Asked, row.Applied, row.How, row.Enforced, row.Note)
	}
	closed(t, box)
	terrariumtest.LeavesNothing(t, spec, "after it was closed")
}
