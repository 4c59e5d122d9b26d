//go:build linux

package docker

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"tendril/fault"
	"tendril/stoma"
	"tendril/terrarium"
)

// lookTime bounds the look from inside.
const lookTime = 20 * time.Second

// places are the paths of which the look has to say what is there.
func (b blueprint) places() []string {
	var paths []string
	for _, m := range b.host.Mounts {
		paths = append(paths, m.Target)
	}
	for target := range b.host.Tmpfs {
		paths = append(paths, target)
	}
	return append(paths, "/", "/dev/shm")
}

// look asks what a command inside meets. Nothing of the Sprout has run yet: what is said is
// the Stoma's word, and the kernel's.
func (t *open) look(ctx context.Context, paths []string) (l stoma.Look, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, lookTime, errors.New("the look from inside took too long"))
	defer cancel()
	defer func() {
		if err != nil && ctx.Err() == nil {
			err = fault.New(fault.BrokenBoundary, "looking at the container from inside: %w", err)
		}
	}()
	argv := append([]string{terrarium.StomaInside, "look"}, paths...)
	process, err := t.Client.Exec(ctx, stoma.ExecRequest{Argv: argv, Timeout: lookTime})
	if err != nil {
		return l, err
	}
	defer process.Close()
	process.Stdin.Close()
	text, err := io.ReadAll(io.LimitReader(process.Stdout, stoma.MaxLook+1))
	if err != nil {
		return l, err
	}
	exit, err := process.Wait(ctx)
	if err != nil {
		return l, err
	}
	if exit.Code == nil || *exit.Code != 0 {
		return l, fmt.Errorf("it ended with %+v", exit)
	}
	return stoma.ParseLook(text)
}

// compare refuses a container in which a command meets something else than was asked for.
func (b blueprint) compare(l stoma.Look) error {
	if !b.kind.kernel(l.Kernel) {
		return differs("kernel", "that of the runtime "+b.kind.runtime, l.Kernel)
	}
	user := fmt.Sprintf("%d\t%[1]d\t%[1]d\t%[1]d", b.limits.User.UID)
	group := fmt.Sprintf("%d\t%[1]d\t%[1]d\t%[1]d", b.limits.User.GID)
	for _, want := range [][2]string{
		{"Uid", user}, {"Gid", group}, {"CapInh", noCapability}, {"CapPrm", noCapability}, {"CapEff", noCapability}, {"CapBnd", noCapability}, {"CapAmb", noCapability}, {"NoNewPrivs", "1"}, {"Seccomp", "2"},
	} {
		if got := l.Status[want[0]]; got != want[1] && !(b.kind.own && want[0] == "CapAmb" && got == "") {
			return differs(want[0]+" inside", want[1], got)
		}
	}
	if !slices.Equal(l.Interfaces, []string{"lo"}) {
		return differs("network interfaces", "lo", l.Interfaces)
	}
	if core := l.Resources["core"]; core != 0 {
		return differs("limit of core files", 0, core)
	}
	if err := b.compareSizes(l); err != nil {
		return err
	}
	if err := b.compareMounts(l.Mounts); err != nil {
		return err
	}
	if b.kind.own {
		return nil // its namespaces and inodes are its own
	}
	if err := compareNamespaces(l.Namespaces); err != nil {
		return err
	}
	return b.comparePlaces(l)
}

// compareSizes wants every place that can be written to have the size that was asked for.
func (b blueprint) compareSizes(l stoma.Look) error {
	for target, size := range b.sizes() {
		if got := l.Places[target].Size; got < size-pageSize || got > size+pageSize {
			return differs("size of "+target, size, got)
		}
	}
	return nil
}

const pageSize = 4096

func (b blueprint) sizes() map[string]int64 {
	sizes := map[string]int64{workspace: b.limits.Disk + b.base, "/dev/shm": sharedMemory}
	for _, path := range scratch {
		sizes[path] = b.limits.Disk
	}
	return sizes
}

// compareMounts wants what was asked for, in the mode that was asked for, and besides it
// only what every container has.
func (b blueprint) compareMounts(mountinfo string) error {
	missing := map[string]bool{"/": true}
	for _, path := range b.places() {
		missing[path] = true
	}
	lines := bufio.NewScanner(strings.NewReader(mountinfo))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		f := strings.Fields(lines.Text())
		if len(f) < 6 {
			return differs("table of mounts", "proc_pid_mountinfo(5)", lines.Text())
		}
		target, options := unescape(f[4]), strings.Split(f[5], ",")
		_, scratch := b.sizes()[target]
		writable := slices.Contains(options, "rw")
		switch {
		case !missing[target] && !everybodys(target):
			return differs("mount "+target, "nothing", lines.Text())
		// gVisor has no devices to open and does not list the flag.
		case scratch && !(slices.Contains(options, "nosuid") && (b.kind.own || slices.Contains(options, "nodev"))):
			return differs("mount "+target, "nosuid and nodev", f[5])
		case missing[target] && writable && !scratch && !(target == "/" && b.spec.WritableRoot):
			return differs("mount "+target, "read-only", f[5])
		}
		delete(missing, target)
	}
	if err := lines.Err(); err != nil {
		return differs("table of mounts", "lines", err)
	}
	for target := range missing {
		return differs("mount "+target, "there", "missing")
	}
	return nil
}

// everybodys are the mounts that a container has of its runtime.
func everybodys(target string) bool {
	return slices.ContainsFunc([]string{"/proc", "/dev", "/sys"}, func(top string) bool {
		return target == top || strings.HasPrefix(target, top+"/")
	})
}

// unescape undoes what the kernel does to blanks, newlines and backslashes in paths.
func unescape(path string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(path)
}

// apart are the namespaces that a container must not share with this process; of accounts,
// only some daemons give it one of its own.
var apart = []string{"cgroup", "ipc", "mnt", "net", "pid", "uts"}

func compareNamespaces(got map[string]string) error {
	for _, kind := range apart {
		ours, err := os.Readlink("/proc/self/ns/" + kind)
		if err != nil {
			return fault.New(fault.BrokenBoundary, "reading our own %s namespace: %w", kind, err)
		}
		if got[kind] == "" || got[kind] == ours {
			return differs(kind+" namespace", "its own", got[kind])
		}
	}
	return nil
}

// comparePlaces wants what is shown to be what is here under its name: a daemon that sees
// other files than this process would show those.
func (b blueprint) comparePlaces(l stoma.Look) error {
	for _, m := range b.host.Mounts {
		var st unix.Stat_t
		if err := unix.Stat(m.Source, &st); err != nil {
			return fault.New(fault.BrokenBoundary, "reading back what the container shows at %s: %w", m.Target, err)
		}
		if got := l.Places[m.Target]; got.Missing || got.Device != uint64(st.Dev) || got.Inode != st.Ino {
			return fault.New(fault.BrokenBoundary, "the container shows something else than %s at %s", m.Source, m.Target).
				WithRule(whatWasAsked).
				WithHint("the daemon has to see the files of this host under the same names: it must not run in a container of its own")
		}
	}
	return nil
}
