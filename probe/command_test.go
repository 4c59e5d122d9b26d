//go:build linux

package probe

import (
	"os/exec"
	"strings"
	"testing"
)

// stoma runs `stoma probe` with the arguments. Only probes that touch nothing but this
// process are run here.
func stoma(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	c := exec.Command("/proc/self/exe", append([]string{"probe"}, args...)...)
	c.Env = []string{"PATH=/usr/bin:/bin"}
	var out, errs strings.Builder
	c.Stdout, c.Stderr = &out, &errs
	_ = c.Run()
	return out.String(), errs.String(), c.ProcessState.ExitCode()
}

func TestListNamesEveryProbe(t *testing.T) {
	out, _, code := stoma(t, "list")
	if code != 0 || strings.Count(out, "\n") != len(All()) {
		t.Errorf("exit %d:\n%s", code, out)
	}
	for _, p := range All() {
		if !strings.Contains(out, p.ID+"\t"+p.Dimension+"\t"+p.Seal+"\t") {
			t.Errorf("%s is not listed", p.ID)
		}
	}
}

func TestOneLinePerProbeAndTheWorstAsStatus(t *testing.T) {
	out, _, code := stoma(t, "S01", "S02")
	lines := strings.Split(strings.TrimSuffix(out, "\n"), "\n")
	if code != exitStatus[Sealed] || len(lines) != 2 {
		t.Fatalf("exit %d:\n%s", code, out)
	}
	for i, id := range []string{"S01", "S02"} {
		if r, err := Parse([]byte(lines[i])); err != nil || r.ID != id || r.Status != Sealed {
			t.Errorf("%s (%v)", r, err)
		}
	}
	// K32 leaks wherever these tests run outside of gVisor.
	if gvisor() {
		t.Skip("runs in gVisor")
	}
	if _, _, code := stoma(t, "S01", "K32", "S02"); code != exitStatus[Leak] {
		t.Errorf("a leak among others exits with %d", code)
	}
}

func TestWrongCommandLine(t *testing.T) {
	for _, args := range [][]string{{}, {"none"}, {"S01", "none"}, {"list", "S01"}} {
		out, errs, code := stoma(t, args...)
		if code != exitUsage || out != "" || errs == "" {
			t.Errorf("%q: exit %d, stdout %q, stderr %q", args, code, out, errs)
		}
	}
}
