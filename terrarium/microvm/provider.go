//go:build linux

package microvm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"tendril/cgroup"
	"tendril/fault"
	"tendril/rootfs"
	"tendril/stoma"
	"tendril/terrarium"
	"tendril/terrarium/confine"
	"tendril/terrarium/microvm/guestimage"
)

// Config says where the wall finds its parts.
type Config struct {
	Program string // the binary that re-executes as the jail: tendril itself
	Stoma   string // the guest half of the Stoma, a static binary
	Guest   string // the directory that `tendril terrarium setup microvm` made
}

type provider struct {
	Config
	qemu qemu
}

// smallest is what a guest needs: its kernel and the Stoma take about 60 MiB.
var smallest = confine.Smallest{Memory: 128 << 20, Disk: 16 << 20}

// The names of a Terrarium's files in its directory.
const (
	jailDir     = "jail"
	filesFile   = "files.erofs"
	scratchFile = "scratch.ext4"
	recordFile  = "machine"
)

// Where things are inside. The private directory is root's alone: the Sprout meets what
// is mounted there only through /workspace, /tmp and its home.
const (
	insideBase    = "/.tendril/private/base"
	insideScratch = "/.tendril/private/scratch"
	workspace     = "/workspace"
)

// blueprint is everything that one Terrarium is made from, before anything of it exists.
type blueprint struct {
	spec   terrarium.Spec
	limits confine.Limits
	guest  guestimage.Guest
	files  files
	memory int64 // MiB
	cpus   int
}

func (p *provider) draw(spec terrarium.Spec) (blueprint, error) {
	limits, err := confine.LimitsOf(spec, smallest)
	if err != nil {
		return blueprint{}, err
	}
	guest, err := guestimage.Open(p.Guest, p.Stoma)
	if err != nil {
		return blueprint{}, err
	}
	b := blueprint{spec: spec, limits: limits, guest: guest, memory: limits.Memory >> 20, cpus: processors(limits.CPUs)}
	b.files.over = map[string]content{terrarium.StomaInside: {source: p.Stoma, mode: 0o755}}
	if authority := spec.Rootfs.Authority; authority != nil {
		for path, data := range (rootfs.View{}).Trusting(authority).Files {
			b.files.over[path] = content{data: data, mode: 0o644}
		}
	}
	for _, program := range spec.Rootfs.Programs {
		b.files.over[program.Target] = content{source: program.Source, mode: 0o755}
	}
	b.files.args = []string{"--user", limits.User.String(), "--overlay", insideBase + ":" + insideScratch + ":" + workspace,
		"--own-root", "--machine", "--writable", "/tmp", "--writable", "/home/sprout", "--pids", fmt.Sprint(limits.Pids)}
	for _, l := range spec.Listeners {
		b.files.args = append(b.files.args, "--listen", l.String())
	}
	return b, nil
}

// Open implements [terrarium.Provider].
func (p *provider) Open(ctx context.Context, spec terrarium.Spec) (terrarium.Terrarium, error) {
	b, err := p.draw(spec)
	if err != nil {
		return nil, err
	}
	return p.build(ctx, b)
}

func (p *provider) build(ctx context.Context, b blueprint) (_ *open, err error) {
	dir := b.spec.Workspace.Dir
	t := &open{spec: b.spec, limits: b.limits, dir: dir}
	defer func() {
		if err != nil {
			err = errors.Join(err, t.Close(context.WithoutCancel(ctx)))
		}
	}()
	at := func(name string) string { return filepath.Join(dir, name) }
	if err := os.Mkdir(at(jailDir), 0o700); err != nil {
		return nil, err
	}
	if err := b.files.write(at(filesFile)); err != nil {
		return nil, err
	}
	if err := makeScratch(ctx, "/usr/sbin/mke2fs", at(scratchFile), b.limits.Disk); err != nil {
		return nil, err
	}
	ours, theirs, err := socketPair()
	if err != nil {
		return nil, err
	}
	passed := []*os.File{theirs}
	var drives []drive
	for _, d := range []struct {
		name, path string
		writable   bool
	}{
		{"root", b.spec.Rootfs.Image.Path, false}, {"base", b.spec.Workspace.Image, false},
		{"files", at(filesFile), false}, {"scratch", at(scratchFile), true},
	} {
		flag := os.O_RDONLY
		if d.writable {
			flag = os.O_RDWR
		}
		f, err := os.OpenFile(d.path, flag, 0)
		if err != nil {
			return nil, errors.Join(err, ours.Close())
		}
		passed = append(passed, f)
		drives = append(drives, drive{d.name, f, d.writable})
	}
	t.process, err = startJail(p.Program, passed)
	closeAll(passed)
	if err != nil {
		return nil, errors.Join(err, ours.Close())
	}
	if t.confinement, err = confine.New(b.spec.Run, cgroup.Limits{}); err != nil {
		return nil, errors.Join(err, ours.Close())
	}
	if err := errors.Join(confine.Record(at(recordFile), t.process.pid()), t.confinement.Take(t.process.pid())); err != nil {
		return nil, errors.Join(err, ours.Close())
	}
	args := p.qemu.args(b.memory, b.cpus, drives)
	o := p.qemu.order(at(jailDir), b.guest.Kernel, b.guest.Initramfs, args, 0, len(passed))
	if err := t.process.order(o); err != nil {
		return nil, errors.Join(err, ours.Close())
	}
	if t.stoma, err = stoma.Connect(ctx, ours, stoma.Options{Conn: b.spec.ServeConn, MaxConns: 1024}); err != nil {
		return nil, fault.New(fault.Unavailable, "%w: %q %q", err, t.process.said, t.process.errors)
	}
	return t, nil
}

type open struct {
	spec        terrarium.Spec
	limits      confine.Limits
	dir         string
	confinement confine.Confinement
	process     *process
	stoma       *stoma.Client
	closing     sync.Once
	closeErr    error
}

func (t *open) Stoma() *stoma.Client                 { return t.stoma }
func (t *open) Boundary() []terrarium.Row            { return nil }
func (t *open) Exceeded() <-chan terrarium.LimitName { return nil }
func (t *open) Usage() terrarium.Usage               { return terrarium.Usage{} }

func (t *open) Close(ctx context.Context) error {
	t.closing.Do(func() {
		if t.process != nil {
			t.closeErr = t.process.end(ctx)
		}
		if t.stoma != nil {
			t.stoma.Close()
		}
		t.closeErr = errors.Join(t.closeErr, t.confinement.Release(ctx))
		for _, n := range []string{jailDir, filesFile, scratchFile, recordFile} {
			t.closeErr = errors.Join(t.closeErr, os.RemoveAll(filepath.Join(t.dir, n)))
		}
	})
	return t.closeErr
}

func processors(limit float64) int {
	if limit == 0 {
		return 2
	}
	return int(limit + 0.999)
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}
