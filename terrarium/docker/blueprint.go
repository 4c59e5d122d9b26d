//go:build linux

package docker

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/mount"
	"golang.org/x/sys/unix"
	"tendril/rootfs"
	"tendril/terrarium"
	"tendril/terrarium/confine"
)

// Where things are inside.
const (
	stomaDir  = "/.tendril"
	workspace = "/workspace"
)

// scratch are the places besides the workspace that the Sprout may write to.
var scratch = []string{"/tmp", "/home/sprout"}

// sharedMemory bounds /dev/shm, which is no part of the disk limit; the memory limit
// counts it.
const sharedMemory = 64 << 20

// The labels by which a Sweep finds what is its own.
const (
	labelSite = "tendril.site"
	labelRun  = "tendril.run"
	// labelImage names the site that gave the daemon an image. It is another one, because
	// whatever is made of an image has its labels too.
	labelImage = "tendril.image"
)

// blueprint is everything that one Terrarium is made from, before anything of it exists.
type blueprint struct {
	kind    kind
	support support
	spec    terrarium.Spec
	limits  confine.Limits
	base    int64 // bytes that the base may take
	image   rootImage
	files   map[string][]byte // of the run's directory, by path
	name    string
	config  *container.Config
	host    *container.HostConfig
}

// below names the directory for the wall's files of a run.
func below(dir string) string { return filepath.Join(dir, "docker") }

// draw decides what a Terrarium consists of. It makes nothing.
func (p *provider) draw(spec terrarium.Spec, s support) (blueprint, error) {
	b := blueprint{kind: p.kind, support: s, spec: spec, files: map[string][]byte{}, name: containerName(spec.Run)}
	var err error
	if b.limits, b.base, err = limitsOf(spec); err != nil {
		return b, err
	}
	view, err := b.root()
	if err != nil {
		return b, err
	}
	b.config = p.containerConfig(b)
	if b.host, err = p.hostConfig(b, view); err != nil {
		return b, err
	}
	return b, nil
}

func containerName(run string) string { return "tendril-" + run }

// root decides on the root file system, and returns what is mounted over its image.
func (b *blueprint) root() (rootfs.View, error) {
	var own, view rootfs.View
	user := rootfs.User{UID: b.limits.User.UID, GID: b.limits.User.GID, Name: "sprout", Home: "/home/sprout"}
	places, err := rootfs.ImagePlaces(user)
	if err != nil {
		return view, err
	}
	if host := b.spec.Rootfs.Host; host != nil {
		if own, err = rootfs.HostView(host.Dirs, user); err != nil {
			return view, err
		}
	}
	view = own
	if authority := b.spec.Rootfs.Authority; authority != nil {
		view = view.Trusting(authority)
	}
	for _, p := range b.spec.Rootfs.Programs {
		view = view.Showing(p.Source, p.Target)
	}
	placed := b.layOver(view, own, places)
	if i := b.spec.Rootfs.Image; i != nil {
		b.image = imageOf(i)
		return placed, nil
	}
	b.image, err = skeleton(placed)
	return placed, err
}

// layOver makes what differs from run to run files of the run, which are mounted, so that
// many runs have one image. Files of the view that are not its own stay as places.
func (b *blueprint) layOver(view, own rootfs.View, places rootfs.Places) rootfs.View {
	view.Files, view.Mounts = maps.Clone(view.Files), slices.Clone(view.Mounts)
	for _, path := range slices.Sorted(maps.Keys(view.Files)) {
		if _, same := own.Files[path]; same || slices.ContainsFunc(view.Mounts, func(m rootfs.Mount) bool { return m.Target == path }) {
			continue
		}
		b.cover(&view, path, view.Files[path])
		view.Files[path] = nil
	}
	// Over these the daemon mounts files of its own, unless somebody else does.
	for _, path := range []string{"/etc/hosts", "/etc/hostname", "/etc/resolv.conf"} {
		b.cover(&view, path, places.Files[path])
	}
	return view
}

func (b *blueprint) cover(view *rootfs.View, path string, content []byte) {
	file := filepath.Join(below(b.spec.Workspace.Dir), fmt.Sprintf("over-%d", len(b.files)))
	b.files[file] = content
	view.Mounts = append(view.Mounts, rootfs.Mount{Source: file, Target: path})
}

func (p *provider) containerConfig(b blueprint) *container.Config {
	args := []string{"init", "--user", b.limits.User.String(), "--plain", workspace, "--disk", fmt.Sprint(b.limits.Disk)}
	if b.kind.own || b.support.pids {
		args = append(args, "--pids", fmt.Sprint(b.limits.Pids))
	}
	for _, path := range scratch {
		args = append(args, "--writable", path)
	}
	for _, l := range b.spec.Listeners {
		args = append(args, "--listen", l.String())
	}
	user := b.limits.User.String()
	if b.kind.apart {
		user, args = "0:0", append(args, "--own-dev")
	}
	return &container.Config{
		Image:       b.image.name,
		Entrypoint:  []string{terrarium.StomaInside},
		Cmd:         args,
		User:        user,
		WorkingDir:  "/",
		Hostname:    rootfs.Hostname,
		OpenStdin:   true,
		StdinOnce:   true, // who was attached is gone: the Stoma reads the end, and everything ends
		AttachStdin: true, AttachStdout: true, AttachStderr: true,
		Healthcheck: &container.HealthConfig{Test: []string{"NONE"}},
		Labels:      map[string]string{labelSite: p.Site, labelRun: b.spec.Run},
	}
}

func (p *provider) hostConfig(b blueprint, view rootfs.View) (*container.HostConfig, error) {
	allowed, err := filter()
	if err != nil {
		return nil, err
	}
	files, err := openFiles()
	if err != nil {
		return nil, err
	}
	pids, init := int64(0), false
	ulimits := []*container.Ulimit{{Name: "core"}, {Name: "nofile", Hard: files, Soft: files}}
	memory := b.limits.Memory
	switch {
	case b.kind.own:
		// Its kernel counts what is inside, and is ended by its end of memory: what the
		// host keeps lies above that.
		stop := confine.Backstop(b.limits)
		pids, memory = int64(stop.Pids), stop.MemoryMax
		ulimits = append(ulimits, &container.Ulimit{Name: "nproc", Hard: int64(b.limits.Pids), Soft: int64(b.limits.Pids)})
	default:
		pids = int64(b.limits.Pids)
	}
	h := &container.HostConfig{
		NetworkMode:    "none",
		IpcMode:        container.IPCModePrivate,
		CgroupnsMode:   container.CgroupnsModePrivate,
		CapDrop:        []string{"ALL"},
		SecurityOpt:    []string{"no-new-privileges:true", "seccomp=" + allowed},
		ReadonlyRootfs: !b.spec.WritableRoot,
		LogConfig:      container.LogConfig{Type: "none"},
		RestartPolicy:  container.RestartPolicy{Name: container.RestartPolicyDisabled},
		Runtime:        b.kind.runtime,
		ShmSize:        sharedMemory,
		OomScoreAdj:    likelyVictim,
		Init:           &init,
		Tmpfs:          b.tmpfs(view),
		Mounts:         mounts(view, p.Stoma, b),
		CapAdd:         b.kind.capabilitiesOfStoma(),
		MaskedPaths:    masked(b.support),
		ReadonlyPaths:  readonly,
		Resources:      container.Resources{Ulimits: ulimits},
	}
	// What the daemon cannot keep it is not asked for: the rows say so.
	if b.support.unkept(terrarium.LimitMemory) == "" {
		h.Memory, h.MemorySwap = memory, memory
	}
	if b.support.cpus {
		h.NanoCPUs = int64(b.limits.CPUs * 1e9)
	}
	if b.support.pids {
		h.PidsLimit = &pids
	}
	if b.spec.WritableRoot {
		h.StorageOpt = map[string]string{"size": fmt.Sprint(b.limits.Disk)}
	}
	return h, nil
}

// likelyVictim is the oom_score_adj of the Stoma, when the host runs out of memory; the
// Sprout's is higher.
const likelyVictim = 500

// openFiles is how many files a process inside may have open. A daemon cannot give more
// than it has without a privilege that some lack, and it is taken to have what we have.
func openFiles() (int64, error) {
	var ours unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &ours); err != nil {
		return 0, fmt.Errorf("asking how many files can be open: %w", err)
	}
	return int64(min(ours.Max, 65536)), nil
}

// tmpfs are the places that can be written, and the directories that are hidden.
func (b blueprint) tmpfs(view rootfs.View) map[string]string {
	all := map[string]string{}
	for target, size := range b.sizes() {
		mode := "0755"
		switch target {
		case "/dev/shm":
			continue // the daemon makes it
		case "/tmp":
			mode = "1777"
		}
		all[target] = fmt.Sprintf("rw,exec,nosuid,nodev,size=%d,nr_inodes=%d,mode=%s,uid=%d,gid=%d", size, inodes(size), mode, b.limits.User.UID, b.limits.User.GID)
	}
	for _, mask := range view.Masks {
		if mask.Dir {
			all[mask.Path] = "ro,noexec,nosuid,nodev,size=4096,mode=0555"
		}
	}
	return all
}

// inodes bounds the files in each place: one takes about a kibibyte of the kernel's memory,
// which the size does not count and the memory limit does. Half of a place can be names.
func inodes(size int64) int64 { return 4096 + size/2048 }

// mounts are the files and directories of the host that are shown.
func mounts(view rootfs.View, stoma string, b blueprint) []mount.Mount {
	show := func(source, target string) mount.Mount {
		return mount.Mount{
			Type: mount.TypeBind, Source: source, Target: target, ReadOnly: true,
			BindOptions: &mount.BindOptions{Propagation: mount.PropagationRPrivate, NonRecursive: true},
		}
	}
	var all []mount.Mount
	for _, m := range view.Mounts {
		all = append(all, show(m.Source, m.Target))
	}
	for _, mask := range view.Masks {
		if !mask.Dir {
			empty := filepath.Join(below(b.spec.Workspace.Dir), "empty")
			b.files[empty] = nil
			all = append(all, show(empty, mask.Path))
		}
	}
	return append(all, show(stoma, terrarium.StomaInside))
}
