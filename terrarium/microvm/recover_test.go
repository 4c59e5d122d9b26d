//go:build linux

package microvm

import (
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"tendril/fault"
	"tendril/stoma"
	"tendril/terrarium"
	"tendril/terrarium/confine"
	"tendril/terrarium/terrariumtest"
)

// collected returns the files of the workspace that differ from the base.
func collected(t *testing.T, inside *stoma.Client) map[string]string {
	t.Helper()
	files := map[string]string{}
	_, err := inside.Collect(t.Context(), func(r stoma.Record) error {
		content, err := io.ReadAll(io.LimitReader(r.Content, 1<<20))
		files[string(r.Path)] = string(content)
		return err
	})
	if err != nil {
		t.Fatalf("collecting: %v", err)
	}
	return files
}

// killed ends a machine as the host's kernel would, and waits until that is noticed.
func killed(t *testing.T, box *open) {
	t.Helper()
	box.process.kill()
	select {
	case <-box.Stoma().Done():
	case <-time.After(time.Minute):
		t.Fatal("nobody notices that the machine is gone")
	}
}

// TestWorkOutlivesItsMachine: what was written when a machine was killed is handed over by
// another one, which attaches the drive and starts nothing.
func TestWorkOutlivesItsMachine(t *testing.T) {
	p := emulated(t)
	for _, c := range []struct {
		how    string
		script string // after the work was written
		die    func(*testing.T, *open)
	}{
		{"killed after the work was synced", "sync", killed},
		{"killed some seconds after the work", "sleep 6", killed},
		{"still running", "sync", func(*testing.T, *open) {}}, // as one of a Stem that was killed may be
	} {
		t.Run(strings.ReplaceAll(c.how, " ", "-"), func(t *testing.T) {
			if confine.Rootless() && c.script == "sync" {
				t.Skip("one way is enough as an ordinary user")
			}
			spec := specFor(t, "outlived")
			box, err := p.Open(t.Context(), spec)
			if err != nil {
				t.Fatal(err)
			}
			first := box.(*open)
			defer closed(t, first)
			run(t, first.Stoma(), "sh", "-c", `echo half of it > work; echo elsewhere > /tmp/scratch; `+c.script)
			c.die(t, first)
			again, err := terrarium.Recover(t.Context(), terrarium.Validated(p), spec)
			if err != nil {
				t.Fatal(err)
			}
			defer closed(t, again)
			if !first.process.ended() {
				t.Error("two machines have one drive")
			}
			if _, err := again.Stoma().Exec(t.Context(), stoma.ExecRequest{Argv: []string{"/bin/true"}}); err == nil {
				t.Error("a command is started in it")
			}
			if files := collected(t, again.Stoma()); files["work"] != "half of it\n" || len(files) != 1 {
				t.Errorf("of the work there is %q", files)
			}
			// In whatever order they are closed.
			closed(t, first)
			if files := collected(t, again.Stoma()); files["work"] != "half of it\n" {
				t.Errorf("after the first was closed there is %q", files)
			}
			closed(t, again)
			terrariumtest.LeavesNothing(t, spec, "after both were closed")
		})
	}
}

func TestNothingToRecover(t *testing.T) {
	p := emulated(t)
	spec := specFor(t, "nothing")
	if _, err := terrarium.Recover(t.Context(), p, spec); !fault.Is(err, fault.NotFound) {
		t.Errorf("answered with %v", err)
	}
	terrariumtest.LeavesNothing(t, spec, "after the refusal")
}

// TestMachineEndsWithItsStream: without its host a guest does not go on.
func TestMachineEndsWithItsStream(t *testing.T) {
	p := emulated(t)
	box, err := p.Open(t.Context(), specFor(t, "alone"))
	if err != nil {
		t.Fatal(err)
	}
	defer closed(t, box)
	box.Stoma().Close()
	select {
	case <-box.(*open).process.exited:
	case <-time.After(time.Minute):
		t.Error("it goes on")
	}
}

// TestImagesMayGo: a machine has its drives open, whatever becomes of their names.
func TestImagesMayGo(t *testing.T) {
	p := emulated(t)
	spec := specFor(t, "gone")
	box := opened(t, p, spec)
	for _, path := range []string{spec.Rootfs.Image.Path, spec.Workspace.Image} {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	if got := run(t, box.Stoma(), "sh", "-c", "cat /bin/busybox | wc -c"); got == "0\n" {
		t.Errorf("of the root there is %q", got)
	}
}

// TestFullHostDisk: when the host's disk is full before the machine's, the command that
// writes is told, and the machine goes on.
func TestFullHostDisk(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to mount a small file system")
	}
	p := emulated(t)
	spec := specFor(t, "full")
	if err := unix.Mount("tmpfs", spec.Workspace.Dir, "tmpfs", 0, "size=24m,mode=700"); err != nil {
		t.Skipf("no small file system can be mounted: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(spec.Workspace.Dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	box := opened(t, p, spec)
	process, err := box.Stoma().Exec(t.Context(), stoma.ExecRequest{
		Argv: []string{"sh", "-c", "echo so far > work; sync; dd if=/dev/zero of=much bs=1M count=40 conv=fsync"}, Env: []string{"PATH=/bin"}, Dir: "/workspace",
	})
	if err != nil {
		t.Fatal(err)
	}
	defer process.Close()
	exit, err := process.Wait(t.Context())
	if err != nil || exit.Code == nil || *exit.Code == 0 {
		t.Errorf("a command that wrote more than there is ended with %+v (%v)", exit, err)
	}
	if files := collected(t, box.Stoma()); files["work"] != "so far\n" {
		t.Errorf("the work so far was collected as %d files", len(files))
	}
}
