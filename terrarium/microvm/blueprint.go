//go:build linux

package microvm

import (
	"fmt"
	"math"
	"path/filepath"
	"runtime"

	"tendril/cgroup"
	"tendril/rootfs"
	"tendril/terrarium"
	"tendril/terrarium/confine"
	"tendril/terrarium/microvm/guestimage"
)

// smallest is what a guest needs: its kernel and the Stoma take about 70 MiB, the scratch
// file system 5.
var smallest = confine.Smallest{Memory: 128 << 20, Disk: 16 << 20}

// Where things are inside. The private directory is root's alone: the Sprout meets what
// is mounted there only through /workspace, /tmp and its home.
const (
	insideBase    = rootfs.PrivateBase
	insideScratch = rootfs.PrivateScratch
	workspace     = "/workspace"
)

// blueprint is everything that one Terrarium is made from, before anything of it exists.
type blueprint struct {
	spec   terrarium.Spec
	limits confine.Limits
	guest  guestimage.Guest
	files  files
	kvm    bool
	slow   string // why not, for a person
	again  bool   // over the scratch drive that is there
}

// draw decides what a Terrarium consists of. It makes nothing.
func (p *provider) draw(spec terrarium.Spec) (blueprint, error) {
	limits, err := confine.LimitsOf(spec, smallest)
	if err != nil {
		return blueprint{}, err
	}
	guest, err := guestimage.Open(p.Guest, p.Stoma)
	if err != nil {
		return blueprint{}, err
	}
	b := blueprint{spec: spec, limits: limits, guest: guest}
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

// names of the parts of a Terrarium in its directory. A machine that recovers the work of
// another has names of its own.
type names struct {
	dir, record, files string
	group              string // of the run's processes
}

// The scratch drive is the one part that a machine leaves to another.
const scratchFile = "scratch.ext4"

func namesIn(dir, run string, again bool) names {
	n := names{dir: "machine", record: "machine.pid", files: "files.erofs", group: run}
	if again {
		n = names{dir: "recovery", record: "recovery.pid", files: "recovery.erofs", group: run + ".recovery"}
	}
	n.dir, n.record, n.files = filepath.Join(dir, n.dir), filepath.Join(dir, n.record), filepath.Join(dir, n.files)
	return n
}

// mostEmulated is how many processors an emulated machine has for which nobody asked for a
// limit: each takes its time to start.
const mostEmulated = 8

// processors is how many the machine has: the limit is what it may use of them.
func (b blueprint) processors() int {
	switch {
	case b.limits.CPUs > 0:
		return int(math.Ceil(b.limits.CPUs))
	case b.kvm:
		return runtime.NumCPU()
	default:
		return min(runtime.NumCPU(), mostEmulated)
	}
}

// memoryMiB is the machine's memory, of which the guest's kernel takes its part.
func (b blueprint) memoryMiB() int64 { return b.limits.Memory >> 20 }

// What the process of a machine may need beside the machine's memory, in bytes, and the
// threads that it may have beside one for each processor.
const (
	emulatorMemory  = (translatedMiB + 256) << 20
	emulatorThreads = 256
)

// backstop is what the host keeps the machine's process in. What bounds the memory is the
// machine's size; this is for an emulator that grows.
func (b blueprint) backstop() cgroup.Limits {
	return cgroup.Limits{CPUs: b.limits.CPUs, MemoryMax: b.limits.Memory + emulatorMemory, Pids: emulatorThreads + b.processors()}
}
