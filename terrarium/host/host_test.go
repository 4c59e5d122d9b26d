//go:build linux

package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"tendril/erofs"
	"tendril/fault"
	"tendril/stoma"
	"tendril/terrarium"
	"tendril/terrarium/terrariumtest"
)

// specFor asks for a run over an empty workspace.
func specFor(t *testing.T) terrarium.Spec {
	t.Helper()
	top := t.TempDir()
	dir, image := filepath.Join(top, "run"), filepath.Join(top, "base.erofs")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(image)
	if err != nil {
		t.Fatal(err)
	}
	err = erofs.New(f, erofs.Options{UID: 1, GID: 1, Time: time.Unix(1, 0)}).Close()
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	return terrarium.Spec{
		Run:       fmt.Sprintf("%s-%d", strings.ToLower(t.Name()), os.Getpid()),
		Rootfs:    terrarium.Rootfs{Host: &terrarium.HostView{}},
		Workspace: terrarium.Workspace{Image: image, Dir: dir},
		Env:       []string{"PATH=/usr/bin:/bin"},
	}
}

// opened opens a Terrarium and closes it with the test.
func opened(t *testing.T, spec terrarium.Spec) terrarium.Terrarium {
	t.Helper()
	box, err := terrarium.Validated(allowed(t)).Open(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := box.Close(context.Background()); err != nil {
			t.Error(err)
		}
		terrariumtest.LeavesNothing(t, spec, "after Close")
	})
	return box
}

// sh runs a script and returns what it said.
func sh(t *testing.T, box terrarium.Terrarium, script string) string {
	t.Helper()
	p, err := box.Stoma().Exec(t.Context(), stoma.ExecRequest{Argv: []string{"sh", "-c", script}, Env: []string{"PATH=/usr/bin:/bin"}, Dir: workspace})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	p.Stdin.Close()
	said, err := io.ReadAll(p.Stdout)
	if err != nil {
		t.Fatal(err)
	}
	aside, _ := io.ReadAll(p.Stderr)
	if exit, err := p.Wait(t.Context()); err != nil || exit.Code == nil || *exit.Code != 0 {
		t.Fatalf("%s: %+v, %v, said %q and %q", script, exit, err, said, aside)
	}
	return string(said)
}

// TestNobodyAllowedIt: without leave the provider is not ready, opens nothing, and says how
// leave is given and what it means.
func TestNobodyAllowedIt(t *testing.T) {
	p := allowed(t)
	p.Allowed = false
	spec := specFor(t)
	_, err := terrarium.Validated(p).Open(t.Context(), spec)
	for _, err := range []error{p.Ready(t.Context()), err} {
		var refusal *fault.Error
		if !fault.Is(err, fault.Unavailable) || !errors.As(err, &refusal) || !strings.Contains(fmt.Sprint(err), "without any isolation") || !strings.Contains(refusal.Hint, AllowedBy+"=true") {
			t.Errorf("answered with %v", err)
		}
	}
	terrariumtest.LeavesNothing(t, spec, "after the refusal")
	if p.Allowed = true; p.Ready(t.Context()) != nil {
		t.Errorf("with leave: %v", p.Ready(t.Context()))
	}
}

// TestTheHostIsAllThere: a run sees the host's own files, account, groups, network and
// kernel, can write what the account can, and its rows say so.
func TestTheHostIsAllThere(t *testing.T) {
	mine, err := os.MkdirTemp("/var/tmp", "tendril-host-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(mine) })
	box := opened(t, specFor(t))
	passwd, err := os.ReadFile("/etc/passwd")
	if err != nil {
		t.Fatal(err)
	}
	if got := sh(t, box, "cat /etc/passwd"); got != string(passwd) {
		t.Errorf("/etc/passwd is another one: %q", got)
	}
	sh(t, box, "echo here > "+mine+"/made")
	if data, err := os.ReadFile(mine + "/made"); err != nil || string(data) != "here\n" {
		t.Errorf("what the run wrote on the host is %q (%v)", data, err)
	}
	for _, dir := range []string{"/", "/home", "/opt"} { // which are put together
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		inside := strings.Fields(sh(t, box, "ls -a "+dir))
		for _, e := range entries {
			if !slices.Contains(inside, e.Name()) {
				t.Errorf("%s of the host is not in %s", e.Name(), dir)
			}
		}
	}
	net, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	account := fmt.Sprintf("%d:%d", os.Getuid(), os.Getgid())
	for field, want := range map[string]string{"Network": "host", "User": account, "WritableRoot": "true", "Rootfs.Image.Path": "none"} {
		for _, row := range box.Boundary() {
			if row.Field == field && (row.Applied != want || row.Enforced != terrarium.NotKept) {
				t.Errorf("the row of %s says %q kept by %q", field, row.Applied, row.Enforced)
			}
		}
	}
	if got := sh(t, box, "readlink /proc/self/ns/net; echo $(id -u):$(id -g)"); got != net+"\n"+account+"\n" {
		t.Errorf("network and account are %q, want %q and %q", got, net, account)
	}
}

// TestNoPrivilege: whoever runs the Stem, what runs for it has no capability and gets none.
func TestNoPrivilege(t *testing.T) {
	box := opened(t, specFor(t))
	if got := sh(t, box, `grep -h '^Cap\|^NoNewPrivs' /proc/self/status /proc/1/status | sort -u`); strings.Contains(strings.ReplaceAll(got, "0000000000000000", ""), "0") || strings.Count(got, "\n") != 6 {
		t.Errorf("a process and the guest half have %s", got)
	}
}

// TestATakenPort: the host's ports are everybody's.
func TestATakenPort(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	spec := specFor(t)
	port := uint16(taken.Addr().(*net.TCPAddr).Port)
	spec.Listeners = []terrarium.Listener{{Name: "road", Port: port, Serve: func(*stoma.Stream) {}}}
	_, err = terrarium.Validated(allowed(t)).Open(t.Context(), spec)
	if !fault.Is(err, fault.Unavailable) || !strings.Contains(fmt.Sprint(err), fmt.Sprint(port)) || !strings.Contains(fmt.Sprint(err), "road") {
		t.Errorf("answered with %v", err)
	}
	terrariumtest.LeavesNothing(t, spec, "after the refusal")
}

// TestClosedDirectoriesAreRemoved: a Sprout cannot keep its directories by closing them.
func TestClosedDirectoriesAreRemoved(t *testing.T) {
	spec := specFor(t)
	box := opened(t, spec)
	sh(t, box, `mkdir -p a/b /tmp/c && touch a/b/f && chmod 0 a/b && chmod 0500 a && chmod 0 /tmp/c`)
	if err := box.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(spec.Workspace.Dir); err != nil || len(left) > 0 {
		t.Errorf("left are %v (%v)", left, err)
	}
}

// TestWeight: what is in a directory counts, at any depth and once it is closed; what is
// behind a link does not.
func TestWeight(t *testing.T) {
	dir, elsewhere := t.TempDir(), t.TempDir()
	write := func(path string, size int) {
		t.Helper()
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, make([]byte, size), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	write(filepath.Join(elsewhere, "much"), 8<<20)
	write(filepath.Join(dir, "before"), 1<<20)
	s, err := weigh(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	if s.used() != 0 {
		t.Errorf("what was there before weighs %d", s.used())
	}
	stop := s.start()
	defer stop()
	if err := os.Symlink(elsewhere, filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	write(filepath.Join(dir, strings.Repeat("d/", 40), "deep"), 3<<20)
	deadline := time.After(time.Minute)
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	for s.used() < 3<<20 {
		select {
		case <-deadline:
			t.Fatalf("three mebibytes weigh %d", s.used())
		case <-again.C:
		}
	}
	if s.used() > 4<<20 {
		t.Errorf("three mebibytes and a link weigh %d", s.used())
	}
}
