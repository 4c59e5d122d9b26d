//go:build linux

package docker

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/moby/moby/api/types/system"
	"golang.org/x/sys/unix"
	"tendril/fault"
)

// support is what a daemon says that it can do here.
type support struct {
	instance string   // of the daemon, with the runtime that it was configured with
	runtimes []string // that are registered
	apparmor bool     // every container has a profile, unless it is asked to have none
	rootless bool     // the daemon is an ordinary user's
	userns   bool     // accounts inside are others on the host

	memory, swap, cpus, pids bool // which limits it can keep

	driver string // of its storage
	groups bool   // whether a container gets a control group
}

// asked keeps what a daemon said, for a while: asking takes it longer than a container
// takes to be made.
type asked struct {
	mu      sync.Mutex
	at      time.Time
	socket  unix.Stat_t // a daemon that was started again has another
	support support
	tried   string // instance with which a container was opened
}

const supportFresh = 30 * time.Second

// supports returns what the daemon can do, or why no wall can be made with it.
func (p *provider) supports(ctx context.Context) (support, error) {
	if p.unusable != nil {
		return support{}, p.unusable
	}
	var socket unix.Stat_t
	if err := unix.Stat(p.daemon.socket, &socket); err != nil {
		return support{}, p.daemon.explain("looking for the Docker daemon", err)
	}
	p.asked.mu.Lock()
	defer p.asked.mu.Unlock()
	if socket.Ino == p.asked.socket.Ino && socket.Ctim == p.asked.socket.Ctim && time.Since(p.asked.at) < supportFresh {
		return p.asked.support, nil
	}
	if err := p.daemon.ping(ctx); err != nil {
		return support{}, err
	}
	info, err := p.daemon.info(ctx)
	if err != nil {
		return support{}, err
	}
	s, err := p.judge(info)
	if err != nil {
		return support{}, err
	}
	s.instance = instanceOf(info.ID, " ", socket.Ino, " ", socket.Ctim, " ", info.ServerVersion, " ", info.Runtimes[p.kind.runtime])
	p.asked.socket, p.asked.at, p.asked.support = socket, time.Now(), s
	return s, nil
}

// judge refuses a daemon with which no boundary can be made.
func (p *provider) judge(info system.Info) (support, error) {
	var host unix.Utsname
	if err := unix.Uname(&host); err != nil {
		return support{}, fault.New(fault.Unavailable, "asking which kernel this is: %w", err)
	}
	options := securityOptions(info.SecurityOptions)
	s := support{
		driver: info.Driver, groups: info.CgroupDriver != "none",
		apparmor: options["apparmor"], rootless: options["rootless"], userns: options["userns"] || options["rootless"],
		memory: info.MemoryLimit, swap: info.SwapLimit || noSwap(), cpus: info.CPUCfsQuota, pids: info.PidsLimit,
	}
	for name := range info.Runtimes {
		s.runtimes = append(s.runtimes, name)
	}
	refuse := func(format string, args ...any) *fault.Error {
		return fault.New(fault.Unavailable, "the Docker daemon %s %s", p.daemon.socket, fmt.Sprintf(format, args...))
	}
	switch release := unix.ByteSliceToString(host.Release[:]); {
	case info.OSType != "linux":
		return s, refuse("makes containers of %s, not of Linux", info.OSType)
	case info.KernelVersion != release:
		return s, refuse("is on another machine: its kernel is %s, and this host's is %s", info.KernelVersion, release).
			WithRule("a boundary is read back on the host that it is on").
			WithHint("name the socket of a daemon of this host in DOCKER_HOST; Docker Desktop has a machine of its own")
	case !options["seccomp"]:
		return s, refuse("filters no system calls").WithHint("turn on seccomp in the kernel, or use a build of Docker that has it")
	case !slices.Contains(s.runtimes, p.kind.runtime):
		return s, refuse("has no runtime %s", p.kind.runtime).WithHint("%s", p.kind.remedy)
	}
	return s, nil
}

// securityOptions reads "name=seccomp,profile=default" as seccomp.
func securityOptions(list []string) map[string]bool {
	names := map[string]bool{}
	for _, option := range list {
		for part := range strings.SplitSeq(option, ",") {
			if name, ok := strings.CutPrefix(part, "name="); ok {
				names[name] = true
			}
		}
	}
	return names
}

// noSwap reports that this host has no swap, so that nothing has to bound it.
func noSwap() bool {
	data, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(data)) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == "SwapTotal:" {
			n, err := strconv.Atoi(f[1])
			return err == nil && n == 0
		}
	}
	return false
}
