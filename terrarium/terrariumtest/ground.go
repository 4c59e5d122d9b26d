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
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"tendril/erofs"
	"tendril/stoma"
	"tendril/terrarium"
)

// patience is longer than anything here takes on a slow and busy host, at the host's
// speed: it turns a hang into a failure and decides nothing else.
const patience = 2 * time.Minute

// env is what commands inside get.
var env = []string{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=/home/sprout", "LC_ALL=C"}

// ground is what the properties of one wall stand on.
type ground struct {
	bare    terrarium.Provider
	options Options
	image   *terrarium.Image // nil: the wall takes none
	root    terrarium.Rootfs // what Terrariums are opened over
	skipped []string         // properties
	lacking []string         // properties for which this host has no place

	mu    sync.Mutex
	names map[string][]string // by run: what a daemon has called it
}

// newGround fills in what the options leave out.
func newGround(bare terrarium.Provider, o Options) *ground {
	if o.Memory == 0 {
		o.Memory = 256 * mebibyte
	}
	if o.Disk == 0 {
		o.Disk = 8 * mebibyte
	}
	o.Slow = max(o.Slow, 1)
	return &ground{bare: bare, options: o, names: map[string][]string{}}
}

// roots are the root file systems that the wall takes. It makes the image.
func (g *ground) roots(t *testing.T) []terrarium.Rootfs {
	t.Helper()
	var roots []terrarium.Rootfs
	if g.keeps("Rootfs.Host.Dirs") {
		roots = append(roots, terrarium.Rootfs{Host: &terrarium.HostView{}})
	}
	if g.keeps("Rootfs.Image.Path") {
		if g.options.Image == nil {
			t.Fatal("this wall takes images: give the suite one")
		}
		image := g.options.Image(t)
		g.image = &image
		roots = append(roots, terrarium.Rootfs{Image: &image})
	}
	if len(roots) == 0 {
		t.Fatal("this wall declares no root file system: neither Rootfs.Host.Dirs nor Rootfs.Image.Path")
	}
	return roots
}

func (g *ground) provider() terrarium.Provider { return terrarium.Validated(g.bare) }

// keeps reports whether the wall declares to honour a field.
func (g *ground) keeps(field string) bool { return g.bare.Capabilities().Keeps(field) }

// needs skips what only a wall that honours the field has.
func (g *ground) needs(t *testing.T, field string) {
	t.Helper()
	if !g.keeps(field) {
		t.Skipf("this wall does not declare %s", field)
	}
}

// sealed skips what only a wall with that seal has.
func (g *ground) sealed(t *testing.T, seal string) {
	t.Helper()
	if !slices.Contains(g.bare.Capabilities().Seals, seal) {
		t.Skipf("this wall does not declare the seal %s", seal)
	}
}

// slowly is how long this wall takes for what takes the host that long.
func (g *ground) slowly(d time.Duration) time.Duration { return d * time.Duration(g.options.Slow) }

// within bounds a wait.
func (g *ground) within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), g.slowly(patience))
	t.Cleanup(cancel)
	return ctx
}

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
	return g.specOf(newRun(), g.root, terrarium.Workspace{Image: image, Dir: dir})
}

func (g *ground) specOf(run string, root terrarium.Rootfs, w terrarium.Workspace) terrarium.Spec {
	if root.Host != nil { // one that the caller may change
		root.Host = &terrarium.HostView{Dirs: slices.Clone(root.Host.Dirs)}
	}
	spec := terrarium.Spec{Run: run, Rootfs: root, Workspace: w, Env: env}
	if g.keeps("User") {
		spec.User = terrarium.DefaultUser
	}
	return spec
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
	*ground
	spec terrarium.Spec
}

// open opens a Terrarium and closes it with the test.
func (g *ground) open(t *testing.T, change func(*terrarium.Spec)) *box {
	t.Helper()
	spec := g.spec(t)
	if change != nil {
		change(&spec)
	}
	opened, err := g.provider().Open(g.within(t), spec)
	if err != nil {
		t.Fatalf("opening a Terrarium: %v", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), g.slowly(patience))
		defer cancel()
		if err := opened.Close(ctx); err != nil {
			t.Errorf("closing the Terrarium: %v", err)
		}
	})
	return &box{Terrarium: opened, ground: g, spec: spec}
}

// row is what the Terrarium says of a field.
func (b *box) row(t *testing.T, field string) terrarium.Row {
	t.Helper()
	rows := b.Boundary()
	i := slices.IndexFunc(rows, func(r terrarium.Row) bool { return r.Field == field })
	if i < 0 {
		t.Fatalf("%s has no row", field)
	}
	return rows[i]
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
	process, err := b.Stoma().Exec(b.within(t), r)
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
func (b *box) finish(t *testing.T, p *stoma.Process, stdin string) ended {
	t.Helper()
	var stdout, stderr bytes.Buffer
	var copies sync.WaitGroup
	copies.Go(func() { _, _ = io.Copy(&stdout, p.Stdout) })
	copies.Go(func() { _, _ = io.Copy(&stderr, p.Stderr) })
	copies.Go(func() {
		_, _ = io.WriteString(p.Stdin, stdin)
		_ = p.Stdin.Close()
	})
	exit, err := p.Wait(b.within(t))
	if err != nil {
		t.Fatalf("waiting for a command: %v", err)
	}
	copies.Wait()
	return ended{stdout.String(), stderr.String(), exit}
}

func (b *box) run(t *testing.T, argv ...string) ended {
	t.Helper()
	return b.finish(t, b.start(t, stoma.ExecRequest{Argv: argv}), "")
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
	_, err := b.Stoma().Collect(b.within(t), func(r stoma.Record) error {
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
func (g *ground) eventually(t *testing.T, what string, yes func() bool) {
	t.Helper()
	ctx := g.within(t)
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
