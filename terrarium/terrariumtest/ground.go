//go:build linux

package terrariumtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"tendril/erofs"
	"tendril/stoma"
	"tendril/terrarium"
)

// patience is longer than anything here takes on a slow and busy host: it turns a
// hang into a failure and decides nothing else.
const patience = 2 * time.Minute

// env is what commands inside get.
var env = []string{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=/home/sprout", "LC_ALL=C"}

// ground is what the properties of one wall stand on.
type ground struct {
	bare terrarium.Provider
}

func (g *ground) provider() terrarium.Provider { return terrarium.Validated(g.bare) }

// keeps reports whether the wall declares to honour a field.
func (g *ground) keeps(field string) bool { return g.bare.Capabilities().Keeps(field) }

var runs atomic.Int64

// newRun returns a name that no other run on this host has.
func newRun() string { return fmt.Sprintf("conformance-%d-%d", os.Getpid(), runs.Add(1)) }

// spec asks for a Terrarium with a run, a directory and a workspace of its own.
func (g *ground) spec(t *testing.T) terrarium.Spec {
	t.Helper()
	// Not t.TempDir: its paths are long, and a socket's may have 107 bytes.
	top, err := os.MkdirTemp("", "tendril-wall-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(top); err != nil {
			t.Error(err)
		}
	})
	dir := filepath.Join(top, "run")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	image := filepath.Join(top, "base.erofs")
	writeImage(t, image)
	return specOf(newRun(), terrarium.Workspace{Image: image, Dir: dir})
}

func specOf(run string, w terrarium.Workspace) terrarium.Spec {
	return terrarium.Spec{
		Run:       run,
		Rootfs:    terrarium.Rootfs{Host: &terrarium.HostView{}},
		Workspace: w,
		Env:       env,
		User:      terrarium.DefaultUser,
	}
}

const (
	baseName    = "from-the-base"
	baseContent = "written by the commit\n"
)

// writeImage makes a base image with one file.
func writeImage(t *testing.T, path string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	user := terrarium.DefaultUser
	image := erofs.New(f, erofs.Options{UID: user.UID, GID: user.GID, Time: time.Unix(1_700_000_000, 0)})
	_, err = image.File(baseName, erofs.Attr{Perm: 0o644}, strings.NewReader(baseContent))
	if err := errors.Join(err, image.Close(), f.Close()); err != nil {
		t.Fatal(err)
	}
}

// box is an open Terrarium.
type box struct {
	terrarium.Terrarium
	spec terrarium.Spec
}

// open opens a Terrarium and closes it with the test.
func (g *ground) open(t *testing.T, change func(*terrarium.Spec)) *box {
	t.Helper()
	spec := g.spec(t)
	if change != nil {
		change(&spec)
	}
	opened, err := g.provider().Open(within(t), spec)
	if err != nil {
		t.Fatalf("opening a Terrarium: %v", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := opened.Close(ctx); err != nil {
			t.Errorf("closing the Terrarium: %v", err)
		}
	})
	return &box{Terrarium: opened, spec: spec}
}

func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// start starts a command inside.
func (b *box) start(t *testing.T, r stoma.ExecRequest) *stoma.Process {
	t.Helper()
	if r.Env == nil {
		r.Env = env
	}
	if r.Dir == "" {
		r.Dir = "/workspace"
	}
	process, err := b.Stoma().Exec(within(t), r)
	if err != nil {
		t.Fatalf("starting %q: %v", r.Argv, err)
	}
	t.Cleanup(func() { process.Close() })
	return process
}

// ended is a command that has ended.
type ended struct {
	stdout, stderr string
	exit           stoma.Exit
}

func (e ended) ok() bool { return e.exit.Code != nil && *e.exit.Code == 0 }

func (e ended) String() string {
	how := "by a signal"
	if e.exit.Code != nil {
		how = fmt.Sprint("with status ", *e.exit.Code)
	}
	return fmt.Sprintf("ended %s, said %q and %q", how, e.stdout, e.stderr)
}

// finish feeds a command and waits for its end and its output.
func finish(t *testing.T, p *stoma.Process, stdin string) ended {
	t.Helper()
	var stdout, stderr bytes.Buffer
	var copies sync.WaitGroup
	copies.Go(func() { _, _ = io.Copy(&stdout, p.Stdout) })
	copies.Go(func() { _, _ = io.Copy(&stderr, p.Stderr) })
	copies.Go(func() {
		_, _ = io.WriteString(p.Stdin, stdin)
		_ = p.Stdin.Close()
	})
	exit, err := p.Wait(within(t))
	if err != nil {
		t.Fatalf("waiting for a command: %v", err)
	}
	copies.Wait()
	return ended{stdout.String(), stderr.String(), exit}
}

func (b *box) run(t *testing.T, argv ...string) ended {
	t.Helper()
	return finish(t, b.start(t, stoma.ExecRequest{Argv: argv}), "")
}

// sh runs a script and returns what it said. The script has to succeed.
func (b *box) sh(t *testing.T, script string) string {
	t.Helper()
	e := b.run(t, "sh", "-c", script)
	if !e.ok() {
		t.Fatalf("%s: %s", script, e)
	}
	return e.stdout
}

// collected returns the records of the workspace by path, with their content.
func (b *box) collected(t *testing.T) map[string]string {
	t.Helper()
	records := map[string]string{}
	_, err := b.Stoma().Collect(within(t), func(r stoma.Record) error {
		content, err := io.ReadAll(io.LimitReader(r.Content, 1<<10))
		records[string(r.Path)] = string(content)
		return err
	})
	if err != nil {
		t.Fatalf("collecting the work: %v", err)
	}
	return records
}

// eventually asks until the answer is yes. It is for what has no event to wait for.
func eventually(t *testing.T, what string, yes func() bool) {
	t.Helper()
	ctx := within(t)
	again := time.NewTicker(5 * time.Millisecond)
	defer again.Stop()
	for !yes() {
		select {
		case <-ctx.Done():
			t.Fatalf("waiting until %s: %v", what, ctx.Err())
		case <-again.C:
		}
	}
}
