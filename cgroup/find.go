//go:build linux

package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// ErrUnavailable says that this process can make no group with any of the three
// controllers. The error that wraps it says why.
var ErrUnavailable = errors.New("no control group can be made")

// Support says what groups of this process can bound.
type Support struct {
	Version           string // "v1", "v2" or "v1+v2" (hybrid)
	CPU, Memory, Pids bool
	Missing           []string // for each absent controller, why
}

// wanted are the controllers that bound; helpers are those that version 1 needs to
// measure and to kill.
var (
	wanted  = []string{"cpu", "memory", "pids"}
	helpers = []string{"cpuacct", "freezer"}
)

// place is a directory in which a child can be made.
type place struct {
	dir         string
	unified     bool     // version 2
	controllers []string // those a child of it has, or can be given
	enable      []string // those that have to be switched on for children first
}

// Find reports what this process can bound. The error wraps [ErrUnavailable] when that
// is nothing. It makes and changes nothing.
func Find() (Support, error) {
	places, missing, err := findPlaces(hostTree)
	if err != nil {
		return Support{}, err
	}
	s := Support{Missing: missing}
	var v1, v2 bool
	for _, p := range places {
		v1, v2 = v1 || !p.unified, v2 || p.unified
		s.CPU = s.CPU || slices.Contains(p.controllers, "cpu")
		s.Pids = s.Pids || slices.Contains(p.controllers, "pids")
		s.Memory = s.Memory || slices.Contains(p.controllers, "memory")
	}
	switch {
	case v1 && v2:
		s.Version = "v1+v2"
	case v2:
		s.Version = "v2"
	default:
		s.Version = "v1"
	}
	return s, nil
}

// tree is where groups are looked for: the real files, or those of a test.
type tree struct {
	mountinfo string // proc_pid_mountinfo(5)
	self      string // proc_pid_cgroup(5)
	prefix    string // put before every mount point
	uid       int
	writable  func(dir string) bool
}

var hostTree = tree{
	mountinfo: "/proc/self/mountinfo",
	self:      "/proc/self/cgroup",
	uid:       os.Geteuid(),
	writable:  func(dir string) bool { return unix.Faccessat(unix.AT_FDCWD, dir, unix.W_OK, unix.AT_EACCESS) == nil },
}

// findPlaces returns the directories for a new group, at most one for each
// controller, and why the others have none.
func findPlaces(t tree) (places []place, missing []string, err error) {
	mounts, own, err := t.read()
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	if len(mounts) == 0 {
		return nil, nil, fmt.Errorf("%w: no cgroup file system is mounted", ErrUnavailable)
	}
	why := map[string]string{}
	unified, reason := t.unifiedPlace(mounts, own)
	for _, c := range append(slices.Clone(wanted), helpers...) {
		if unified != nil && slices.Contains(unified.controllers, c) {
			continue
		}
		p, r := t.legacyPlace(mounts, own, c)
		if p == nil {
			if r == "" {
				r = reason
			}
			why[c] = r
			continue
		}
		if i := slices.IndexFunc(places, func(q place) bool { return q.dir == p.dir }); i >= 0 {
			places[i].controllers = append(places[i].controllers, c) // mounted together, as cpu,cpuacct are
			continue
		}
		places = append(places, *p)
	}
	if unified != nil {
		places = append(places, *unified)
	}
	for _, c := range wanted {
		if r, ok := why[c]; ok {
			missing = append(missing, c+": "+r)
		}
	}
	bounds := func(p place) bool {
		return slices.ContainsFunc(p.controllers, func(c string) bool { return slices.Contains(wanted, c) })
	}
	if !slices.ContainsFunc(places, bounds) {
		return nil, missing, fmt.Errorf("%w: %s", ErrUnavailable, strings.Join(missing, "; "))
	}
	return places, missing, nil
}

func (t tree) read() ([]mount, map[string]string, error) {
	data, err := os.ReadFile(t.mountinfo)
	if err != nil {
		return nil, nil, err
	}
	mounts := parseMounts(string(data))
	data, err = os.ReadFile(t.self)
	if err != nil {
		return nil, nil, err
	}
	return mounts, parseSelf(string(data)), nil
}

// legacyPlace is this process's own group in the version 1 hierarchy of a controller.
func (t tree) legacyPlace(mounts []mount, own map[string]string, controller string) (*place, string) {
	i := slices.IndexFunc(mounts, func(m mount) bool { return !m.unified && slices.Contains(m.controllers, controller) })
	if i < 0 {
		return nil, ""
	}
	dir, ok := mounts[i].locate(own[controller])
	if !ok {
		return nil, fmt.Sprintf("our group %s is not below %s", own[controller], mounts[i].root)
	}
	dir = t.prefix + dir
	if !t.writable(dir) {
		return nil, fmt.Sprintf("%s cannot be written by this account", dir)
	}
	return &place{dir: dir, controllers: []string{controller}}, ""
}

// unifiedPlace walks up from this process's own group in version 2 to the nearest one
// in which a child gets the most controllers. A group with processes in it cannot
// hand controllers to children unless it is the root ("no internal processes"), so our
// own group rarely serves.
func (t tree) unifiedPlace(mounts []mount, own map[string]string) (*place, string) {
	i := slices.IndexFunc(mounts, func(m mount) bool { return m.unified })
	if i < 0 {
		return nil, "no hierarchy has it"
	}
	start, ok := mounts[i].locate(own[""])
	if !ok {
		return nil, fmt.Sprintf("our group %s is not below %s", own[""], mounts[i].root)
	}
	var best *place
	top := filepath.Clean(mounts[i].target)
	for dir := start; ; dir = filepath.Dir(dir) {
		if p := t.unifiedCandidate(t.prefix+dir, dir == start, dir == top && mounts[i].root == "/"); p != nil && (best == nil || len(p.controllers) > len(best.controllers)) {
			best = p
		}
		if dir == top || best != nil && len(best.controllers) == len(wanted) {
			break
		}
	}
	if best == nil {
		return nil, "no group from ours up to the root lets this account make children with it"
	}
	return best, "no group from ours up to the root hands it to children"
}

func (t tree) unifiedCandidate(dir string, ours, root bool) *place {
	if !t.writable(dir) || !t.writable(filepath.Join(dir, "cgroup.procs")) {
		return nil // a child could be made or filled by others only
	}
	given := controllerSet(filepath.Join(dir, "cgroup.subtree_control"))
	p := place{dir: dir, unified: true}
	for _, c := range wanted {
		if slices.Contains(given, c) {
			p.controllers = append(p.controllers, c)
		}
	}
	if len(p.controllers) < len(wanted) && t.mayEnable(dir, ours, root) {
		for _, c := range controllerSet(filepath.Join(dir, "cgroup.controllers")) {
			if slices.Contains(wanted, c) && !slices.Contains(given, c) {
				p.enable = append(p.enable, c)
				p.controllers = append(p.controllers, c)
			}
		}
	}
	if len(p.controllers) == 0 {
		return nil
	}
	return &p
}

// mayEnable reports whether controllers may be switched on for children of dir: in a
// group that was delegated to this user, or in our own, and only where no processes
// stand in the way.
func (t tree) mayEnable(dir string, ours, root bool) bool {
	var st unix.Stat_t
	if unix.Stat(filepath.Join(dir, "cgroup.subtree_control"), &st) != nil || int(st.Uid) != t.uid {
		return false
	}
	if t.uid == 0 && !ours {
		return false
	}
	if root {
		return true
	}
	procs, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	return err == nil && len(strings.TrimSpace(string(procs))) == 0
}

func controllerSet(path string) []string {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	return strings.Fields(string(data))
}

func exists(path string) bool {
	var st unix.Stat_t
	return unix.Stat(path, &st) == nil
}
