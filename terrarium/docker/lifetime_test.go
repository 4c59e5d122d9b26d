//go:build linux

package docker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/moby/moby/api/types/container"
	"tendril/fault"
	"tendril/rootfs"
	"tendril/stoma"
	"tendril/terrarium"
	"tendril/terrarium/docker/dockertest"
	"tendril/terrarium/terrariumtest"
)

// onOwnDaemon is a wall with a daemon that the test may end.
func onOwnDaemon(t *testing.T, k kind) (*provider, *dockertest.Daemon) {
	t.Helper()
	return onDaemon(t, k, func(string) dockertest.Options { return dockertest.Options{} })
}

// onDaemon is the same with a daemon that is other than usual. The options may name files below
// its directory.
func onDaemon(t *testing.T, k kind, options func(dir string) dockertest.Options) (*provider, *dockertest.Daemon) {
	t.Helper()
	dockertest.Needs(t)
	shared := wall(t, k)
	// Not t.TempDir: a socket's path may have 107 bytes.
	dir, err := os.MkdirTemp("", "tendril-dockerd-")
	if err != nil {
		t.Fatal(err)
	}
	daemon, err := dockertest.Start(dir, os.Getenv("TENDRIL_TEST_BINARY"), options(dir))
	if err != nil {
		t.Fatal(errors.Join(err, os.RemoveAll(dir)))
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := daemon.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	return newProvider(Config{Host: daemon.Host, Stoma: shared.Stoma, Site: site}, k), daemon
}

// within is longer than anything here takes.
func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// over waits until the run's stream has ended.
func over(t *testing.T, box terrarium.Terrarium) {
	t.Helper()
	select {
	case <-box.Stoma().Done():
	case <-within(t).Done():
		t.Fatal("the stream of the Stoma does not end")
	}
}

// TestDaemonIsKilled: the run ends with its daemon; that its container could not be removed
// is said, and the next Sweep does it.
func TestDaemonIsKilled(t *testing.T) {
	p, daemon := onOwnDaemon(t, runc)
	spec := terrariumtest.HostSpec(t, "killed")
	box, err := terrarium.Validated(p).Open(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	process, err := box.Stoma().Exec(t.Context(), stoma.ExecRequest{Argv: []string{"/usr/bin/sleep", "86400"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := daemon.Kill(within(t)); err != nil {
		t.Fatal(err)
	}
	over(t, box)
	if _, err := process.Wait(within(t)); err == nil {
		t.Error("a command of a container without a daemon claims that it ended well")
	}
	short, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := box.Close(short); !fault.Is(err, fault.Unavailable) || !strings.Contains(err.Error(), "is still there") || short.Err() != nil {
		t.Errorf("closing without a daemon was answered with %v", err)
	}
	// What a Sweep needs to know stays, and nothing else.
	if running := withIn(spec.Workspace.Dir); len(running) > 0 {
		t.Errorf("after Close without a daemon there are still the processes %v", running)
	}
	if err := p.Sweep(within(t), spec.Run, spec.Workspace.Dir); !fault.Is(err, fault.Unavailable) {
		t.Errorf("sweeping without a daemon was answered with %v", err)
	}
	if err := daemon.Again(); err != nil {
		t.Fatal(err)
	}
	if err := p.Sweep(within(t), spec.Run, spec.Workspace.Dir); err != nil {
		t.Fatal(err)
	}
	terrariumtest.LeavesNothing(t, spec, "after the Sweep")
	p.leavesNoContainer(t, spec.Run)
	again, err := terrarium.Validated(p).Open(t.Context(), spec)
	if err != nil {
		t.Fatalf("with the daemon back: %v", err)
	}
	if err := again.Close(within(t)); err != nil {
		t.Error(err)
	}
}

// TestContainerIsKilled: whoever ends the container ends the run, and nothing is left.
func TestContainerIsKilled(t *testing.T) {
	for name, end := range map[string]func(p *provider, id string) error{
		"killed":  func(p *provider, id string) error { return p.daemon.kill(context.Background(), id) },
		"removed": func(p *provider, id string) error { return p.daemon.remove(context.Background(), id) },
	} {
		t.Run(name, func(t *testing.T) {
			p := wall(t, runc)
			spec := terrariumtest.HostSpec(t, "ended")
			box, err := terrarium.Validated(p).Open(t.Context(), spec)
			if err != nil {
				t.Fatal(err)
			}
			found, err := p.find(t.Context(), spec.Run)
			if err != nil || len(found) != 1 {
				t.Fatalf("found %q (%v)", found, err)
			}
			if err := end(p, found[0]); err != nil {
				t.Fatal(err)
			}
			over(t, box)
			if err := box.Close(within(t)); err != nil {
				t.Error(err)
			}
			terrariumtest.LeavesNothing(t, spec, "after the container's end")
			p.leavesNoContainer(t, spec.Run)
		})
	}
}

// TestOthersAreSpared: a Sweep takes the run's container and none that is similar.
func TestOthersAreSpared(t *testing.T) {
	p := wall(t, runc)
	spec := terrariumtest.HostSpec(t, "ours")
	box, err := terrarium.Validated(p).Open(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	defer box.Close(context.Background())
	b, err := p.blueprint(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	foreign := map[string]map[string]string{
		"tendril-" + spec.Run + "-2": {labelSite: p.Site, labelRun: spec.Run + "-2"},
		"tendril-" + spec.Run[:5]:    {labelSite: p.Site, labelRun: spec.Run[:5]},
		"other-site-" + spec.Run:     {labelSite: p.Site + "x", labelRun: spec.Run},
		"no-site-" + spec.Run:        {labelRun: spec.Run},
		"no-run-" + spec.Run:         {labelSite: p.Site},
		"name-only-" + spec.Run:      {"tendril.sites": p.Site, "tendril.runs": spec.Run},
	}
	for name, labels := range foreign {
		id, err := p.daemon.create(t.Context(), name, &container.Config{Image: b.image.name, Entrypoint: []string{"/nothing"}, Labels: labels}, &container.HostConfig{NetworkMode: "none"})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := p.daemon.remove(context.Background(), id); err != nil {
				t.Error(err)
			}
		})
	}
	if err := p.Sweep(within(t), spec.Run, spec.Workspace.Dir); err != nil {
		t.Fatal(err)
	}
	over(t, box)
	all, err := p.daemon.labelled(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	left := map[string]bool{}
	for _, c := range all {
		left[strings.TrimPrefix(c.Names[0], "/")] = true
	}
	for name := range foreign {
		if !left[name] {
			t.Errorf("the container %s of somebody else is gone", name)
		}
	}
	if left[containerName(spec.Run)] {
		t.Error("the run's own container is left")
	}
}

// TestContainerThatComesLate: somebody was killed while the daemon was asked for a container, and it
// comes when the Sweep has begun.
func TestContainerThatComesLate(t *testing.T) {
	p := wall(t, runc)
	spec := terrariumtest.HostSpec(t, "late")
	b, err := p.blueprint(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(p.bring(t.Context(), b.image), writeFiles(b), os.WriteFile(asking(spec.Workspace.Dir), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	swept := make(chan error)
	go func() { swept <- p.Sweep(within(t), spec.Run, spec.Workspace.Dir) }()
	if _, err := p.daemon.create(t.Context(), b.name, b.config, b.host); err != nil {
		t.Fatal(err)
	}
	if err := <-swept; err != nil {
		t.Fatal(err)
	}
	p.leavesNoContainer(t, spec.Run)
	terrariumtest.LeavesNothing(t, spec, "after Sweep")
}

// TestImagesAreBounded: a daemon that lost the image is given it again, and keeps no more of them
// than it has to.
func TestImagesAreBounded(t *testing.T) {
	p, _ := onOwnDaemon(t, runc)
	for i := range keptImages + 3 {
		view := rootImage{name: "tendril/view:" + strings.Repeat("0", i) + "1", write: func(w io.Writer) error {
			return writeSkeleton(w, rootfs.View{Dirs: []rootfs.Dir{{Path: fmt.Sprintf("/%d", i), Mode: 0o755}}})
		}}
		if err := p.bring(t.Context(), view); err != nil {
			t.Fatal(err)
		}
	}
	names, err := p.daemon.images(t.Context(), labelImage, p.Site)
	if err != nil || len(names) != keptImages {
		t.Errorf("%d images are kept: %q (%v)", len(names), names, err)
	}
	spec := terrariumtest.HostSpec(t, "image")
	for range 2 {
		box, err := terrarium.Validated(p).Open(t.Context(), spec)
		if err != nil {
			t.Fatal(err)
		}
		if err := box.Close(within(t)); err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			if err := p.daemon.forget(t.Context(), name); err != nil {
				t.Fatal(err)
			}
		}
		if names, err = p.daemon.images(t.Context(), labelImage, p.Site); err != nil {
			t.Fatal(err)
		}
	}
}

// TestAnotherListener: what speaks something else on the socket is told from a Docker daemon, and
// what it says reaches nobody.
func TestAnotherListener(t *testing.T) {
	for name, says := range map[string]string{
		"a web server":   "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
		"something else": "\x1b[31mSSH-2.0-other\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			// Not t.TempDir: a socket's path may have 107 bytes.
			dir, err := os.MkdirTemp("", "tendril-other-")
			if err != nil {
				t.Fatal(err)
			}
			defer os.RemoveAll(dir)
			listener, err := net.Listen("unix", filepath.Join(dir, "s"))
			if err != nil {
				t.Fatal(err)
			}
			served := make(chan struct{})
			go func() {
				defer close(served)
				for {
					conn, err := listener.Accept()
					if err != nil {
						return
					}
					_, _ = conn.Read(make([]byte, 4096)) // its request, whatever it is
					_, _ = io.WriteString(conn, says)
					conn.Close()
				}
			}()
			d, err := dial("unix://" + filepath.Join(dir, "s"))
			if err != nil {
				t.Fatal(err)
			}
			if err := d.ping(within(t)); err == nil || !strings.Contains(err.Error(), "is no Docker daemon") || strings.Contains(err.Error(), "SSH") {
				t.Errorf("%v", err)
			}
			listener.Close()
			<-served
		})
	}
}

// TestImageIsWhatWasGiven: an image's name may lead to anything that somebody gave the daemon
// meanwhile, and no run starts with it.
func TestImageIsWhatWasGiven(t *testing.T) {
	p, _ := onOwnDaemon(t, runc)
	p.Store = t.TempDir()
	spec := terrariumtest.HostSpec(t, "image")
	b, err := p.blueprint(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	open := func() error {
		box, err := terrarium.Validated(p).Open(t.Context(), spec)
		if err != nil {
			return err
		}
		return box.Close(within(t))
	}
	if err := open(); err != nil {
		t.Fatal(err)
	}
	// A digest that is remembered wrongly is worked out again.
	if err := p.layers().keep(b.image.name, "sha256:"+strings.Repeat("0", 64)); err != nil {
		t.Fatal(err)
	}
	if err := open(); err != nil {
		t.Fatal(err)
	}
	for _, remembered := range []bool{true, false} {
		if !remembered {
			p.Store = ""
		}
		var other bytes.Buffer
		if err := errors.Join(b.image.write(&other), p.daemon.importImage(t.Context(), b.image.name, map[string]string{labelImage: p.Site}, io.MultiReader(&other, strings.NewReader(strings.Repeat("\x00", 512))))); err != nil {
			t.Fatal(err)
		}
		var f *fault.Error
		if err := open(); !errors.As(err, &f) || f.Kind != fault.BrokenBoundary || !strings.Contains(f.Hint, b.image.name) {
			t.Errorf("opened with another image under its name: %v", err)
		}
		terrariumtest.LeavesNothing(t, spec, "after the refusal")
	}
	// What the hint says helps.
	if err := p.daemon.forget(t.Context(), b.image.name); err != nil {
		t.Fatal(err)
	}
	if err := open(); err != nil {
		t.Fatal(err)
	}
	// Two lost their name: the first one to the second, and that to the third.
	nameless, err := p.daemon.nameless(t.Context(), labelImage, p.Site, time.Now().Add(namelessAge))
	if err != nil || len(nameless) != 2 {
		t.Fatalf("%d images have no name: %v", len(nameless), err)
	}
	if err := p.forgetNameless(t.Context(), time.Now().Add(-namelessAge)); err != nil {
		t.Fatal(err)
	}
	if kept, err := p.daemon.nameless(t.Context(), labelImage, p.Site, time.Now().Add(namelessAge)); err != nil || len(kept) != 2 {
		t.Errorf("of two that somebody may be naming %d are left (%v)", len(kept), err)
	}
	if err := p.forgetNameless(t.Context(), time.Now().Add(namelessAge)); err != nil {
		t.Fatal(err)
	}
	if left, err := p.daemon.nameless(t.Context(), labelImage, p.Site, time.Now().Add(namelessAge)); err != nil || len(left) != 0 {
		t.Errorf("%d images without a name are left (%v)", len(left), err)
	}
}

// TestReady says what keeps a host from this wall, and what to do.
func TestReady(t *testing.T) {
	guest := filepath.Join(t.TempDir(), "stoma")
	if err := os.WriteFile(guest, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	gone := filepath.Join(t.TempDir(), "gone")
	for name, c := range map[string]struct {
		config Config
		says   string
		hint   string
	}{
		"no socket":       {Config{Host: "unix://" + gone, Stoma: guest}, gone, "start Docker"},
		"another machine": {Config{Host: "tcp://10.0.0.1:2375", Stoma: guest}, "not on a Unix socket", "DOCKER_HOST"},
		"ssh":             {Config{Host: "ssh://gardener@host", Stoma: guest}, "not on a Unix socket", "DOCKER_HOST"},
		"a bare path":     {Config{Host: gone, Stoma: guest}, "a path alone", "DOCKER_HOST=unix://" + gone},
		"nothing":         {Config{Stoma: guest}, "not on a Unix socket", "DOCKER_HOST"},
		"no Stoma":        {Config{Host: "unix://" + gone, Stoma: gone}, "the Stoma is missing", "make"},
	} {
		for _, provider := range []terrarium.Provider{New(c.config), NewGVisor(c.config)} {
			err := provider.Ready(t.Context())
			var f *fault.Error
			if !errors.As(err, &f) || f.Kind != fault.Unavailable || !strings.Contains(f.Detail, c.says) || !strings.Contains(f.Hint, c.hint) {
				t.Errorf("%s, %s: %v (hint %q)", provider.Name(), name, err, f.Hint)
			}
		}
	}
	for _, k := range []kind{runc, gvisor} {
		if err := wall(t, k).Ready(within(t)); err != nil {
			t.Errorf("%s: %v", k.name, err)
		}
	}
}
