package probe

import (
	"errors"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

var fileProbes = []Probe{
	{ID: "F01", Dimension: "filesystem", Seal: HostFiles, What: "no socket of a container daemon", Run: daemonSockets},
	{ID: "F02", Dimension: "filesystem", Seal: HostFiles, What: "no socket anywhere", Run: anySocket},
	{ID: "F03", Core: true, Dimension: "filesystem", Seal: HostFiles, What: "no account, key or setting of the host in /etc", Run: hostEtc},
	{ID: "F07", Dimension: "filesystem", Seal: HostFiles, What: "no home directory of the host", Run: homes},
	{ID: "F08", Dimension: "filesystem", Seal: HostFiles, What: "nothing in /var, /run, /srv, /mnt, /media and /opt but what was listed", Run: hostTrees},
	{ID: "F10", Dimension: "filesystem", Seal: HostFiles, What: "no configuration or sources of the host in /usr", Run: usrConfiguration},
	{ID: "F15", Dimension: "filesystem", Seal: HostFiles, What: "the account list is made for the Terrarium", Run: accounts},
	{ID: "F18", Core: true, Dimension: "filesystem", Seal: HostFiles, What: "no file system of the host is mounted writable", Run: writableMounts},
	{ID: "F20", Dimension: "filesystem", Seal: HostFiles, What: "files cannot be opened by handle", Run: fileHandles},
	{ID: "F27", Dimension: "filesystem", Seal: HostFiles, What: "the layers of an overlay cannot be opened", Run: overlayLayers},
	{ID: "F31", Dimension: "filesystem", Seal: HostFiles, What: "no hard link to a file of another mount", Run: hardLink},
	{ID: "F41", Dimension: "filesystem", Seal: HostFiles, What: "scratch directories hold nothing of others", Run: leftovers},
}

func daemonSockets() Result {
	var t tried
	for _, path := range []string{
		"/var/run/docker.sock", "/run/docker.sock", "/run/containerd/containerd.sock", "/run/crio/crio.sock",
		"/run/podman/podman.sock", "/run/buildkit/buildkitd.sock", "/run/dbus/system_bus_socket",
		"/run/systemd/private", "/run/systemd/journal/socket", "/run/systemd/notify", "/run/snapd.socket", "/var/lib/lxd/unix.socket",
	} {
		if exists(path) {
			t.leak(path)
		}
	}
	return t.result("none")
}

// maxWalk bounds how many entries a probe that walks looks at.
const maxWalk = 20_000

// anySocket walks neither the toolchain nor the workspace: there a walk would take
// long, and the wall opens no socket of the host whatever its place.
func anySocket() Result {
	for _, m := range mounts() {
		if strings.Contains(m.target, ".sock") {
			return leak("%s is mounted", m.target)
		}
	}
	left := maxWalk
	for _, root := range []string{"/run", "/tmp", "/var", "/home", "/root", "/srv", "/mnt", "/media", "/opt", "/dev", "/"} {
		if found := findSocket(root, root == "/", &left); found != "" {
			return leak("%s is a socket", found)
		}
		if left <= 0 {
			return unknown("gave up after %d entries", maxWalk)
		}
	}
	return sealed("no socket")
}

// findSocket walks one file system, or one directory when flat, and returns the
// first socket.
func findSocket(dir string, flat bool, left *int) string {
	names, err := list(dir)
	if err != nil {
		return ""
	}
	var top unix.Stat_t
	if unix.Lstat(dir, &top) != nil {
		return ""
	}
	for _, name := range names {
		if *left--; *left <= 0 {
			return ""
		}
		path := strings.TrimSuffix(dir, "/") + "/" + name
		var st unix.Stat_t
		if unix.Lstat(path, &st) != nil {
			continue
		}
		switch st.Mode & unix.S_IFMT {
		case unix.S_IFSOCK:
			return path
		case unix.S_IFDIR:
			if !flat && st.Dev == top.Dev {
				if found := findSocket(path, false, left); found != "" {
					return found
				}
			}
		}
	}
	return ""
}

// hostEtc names what no view of a toolchain needs. Existing is enough to be a leak:
// whether this account may read it is another seal.
func hostEtc() Result {
	var t tried
	// What is not in the list is not asked for one by one.
	inEtc, err := list("/etc")
	whole := err == nil && len(inEtc) < maxList
	for _, path := range []string{
		"/etc/shadow", "/etc/gshadow", "/etc/sudoers", "/etc/sudoers.d", "/etc/ssl/private", "/etc/pki/tls/private",
		"/etc/ssh", "/etc/gitconfig", "/etc/npmrc", "/etc/pip.conf", "/etc/machine-id", "/etc/fstab", "/etc/crypttab", "/etc/crontab",
		"/etc/environment", "/etc/profile.d", "/etc/krb5.keytab", "/etc/docker", "/etc/kubernetes", "/etc/wireguard", "/etc/netplan",
		"/etc/NetworkManager", "/etc/systemd", "/etc/pam.d", "/etc/cron.d", "/etc/tendril", "/var/lib/tendril",
	} {
		if name, ok := strings.CutPrefix(path, "/etc/"); ok && whole && !slices.Contains(inEtc, strings.Split(name, "/")[0]) {
			continue
		}
		if exists(path) && !ofImage(path) {
			t.leak(path)
		}
	}
	return t.result("none")
}

func homes() Result {
	var t tried
	own := os.Getenv("HOME")
	for _, root := range []string{"/root", "/home", "/Users"} {
		names, err := list(root)
		if err != nil {
			continue // closed or not there
		}
		for _, n := range names {
			if path := root + "/" + n; path != own && path != "/home/sprout" && !leadsToMount(path) && !ofImage(path) {
				t.leak(path)
				break
			}
		}
	}
	if unix.Access("/root", unix.W_OK) == nil {
		t.leak("/root can be written")
	}
	return t.result("none but our own")
}

func hostTrees() Result {
	var t tried
	for _, root := range []string{"/boot", "/media", "/mnt", "/opt", "/run", "/srv", "/var", "/var/lib", "/var/log", "/var/cache", "/var/spool", "/var/mail"} {
		names, err := list(root)
		if err != nil {
			continue
		}
		for _, n := range names {
			path := root + "/" + n
			if path == "/var/tmp" || leadsToMount(path) || emptyDir(path) || ofImage(path) {
				continue
			}
			t.leak(path)
			break
		}
	}
	return t.result("empty")
}

func emptyDir(path string) bool {
	var st unix.Stat_t
	if unix.Lstat(path, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return false
	}
	names, err := list(path)
	return err == nil && len(names) == 0
}

func usrConfiguration() Result {
	var t tried
	for _, dir := range []string{"/usr/local/etc", "/usr/etc", "/usr/src", "/usr/local/src"} {
		if names, err := list(dir); err == nil && len(names) > 0 && !ofImage(dir+"/"+names[0]) {
			t.leak(dir + "/" + names[0])
		}
	}
	return t.result("empty or not there")
}

func accounts() Result {
	data, err := read("/etc/passwd")
	if err != nil {
		return sealed("no /etc/passwd: %s", errno(err))
	}
	if ofImage("/etc/passwd") {
		return sealed("the image's own")
	}
	var foreign []string
	for line := range strings.Lines(string(data)) {
		f := strings.Split(line, ":")
		if len(f) < 3 {
			continue
		}
		if f[2] != "0" && f[2] != "65534" && f[2] != strconv.Itoa(os.Getuid()) {
			foreign = append(foreign, f[0])
		}
	}
	if len(foreign) > 0 {
		return leak("%d accounts besides root, nobody and this one, such as %s", len(foreign), foreign[0])
	}
	return sealed("root, nobody and this one")
}

// ownKinds are file systems that a sandbox makes for itself.
var ownKinds = map[string]bool{
	"proc": true, "tmpfs": true, "devtmpfs": true, "dev": true, "devpts": true, "mqueue": true, "overlay": true, "sysfs": true, "shm": true,
	"cgroup": true, "cgroup2": true,
}

// ownDrive are file systems that a kernel of the Terrarium's own has on a drive of its own.
var ownDrive = map[string]bool{"ext4": true}

func writableMounts() Result {
	all := mounts()
	if len(all) == 0 {
		return unknown("/proc/self/mountinfo cannot be read")
	}
	var t tried
	for _, m := range all {
		if !m.readonly() && !ownKinds[m.kind] && !(ownDrive[m.kind] && ownKernel()) {
			t.leak(m.target + " (" + m.kind + ")")
		}
	}
	return t.result("none")
}

// fileHandles offers the kernel a handle of /, or an invented one where it gives none:
// the capability is checked before the handle is looked at (open_by_handle_at(2)).
func fileHandles() Result {
	handle, _, err := unix.NameToHandleAt(unix.AT_FDCWD, "/", 0)
	if err != nil {
		handle = unix.NewFileHandle(1, make([]byte, 8))
	}
	dir, err := unix.Open("/", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return unknown("open /: %s", errno(err))
	}
	defer unix.Close(dir)
	fd, err := unix.OpenByHandleAt(dir, handle, unix.O_RDONLY|unix.O_CLOEXEC)
	if err == nil {
		unix.Close(fd)
	}
	if errors.Is(err, unix.ESTALE) {
		return leak("the kernel looked for a file by handle: ESTALE")
	}
	return verdict("open_by_handle_at", err)
}

func overlayLayers() Result {
	var t tried
	layers := 0
	for _, m := range mounts() {
		if m.kind != "overlay" {
			continue
		}
		for o := range strings.SplitSeq(m.super, ",") {
			key, value, _ := strings.Cut(o, "=")
			if key != "upperdir" && key != "lowerdir" && key != "workdir" {
				continue
			}
			for path := range strings.SplitSeq(value, ":") {
				layers++
				if ok, _ := opens(path, unix.O_RDONLY); ok {
					t.leak(key + " " + path)
				}
			}
		}
	}
	if layers == 0 {
		return notApplicable("no overlay names its layers")
	}
	return t.result("none opens")
}

// hardLink tries to link a file of another mount into scratch. Where both are on one
// device it would succeed or fail by ownership alone: that is the leak, and nothing is
// linked.
func hardLink() Result {
	dir := os.TempDir()
	var here unix.Stat_t
	if err := unix.Stat(dir, &here); err != nil {
		return unknown("%s: %s", dir, errno(err))
	}
	var t tried
	for _, target := range []string{"/etc/passwd", "/usr/bin/env", "/proc/1/root/etc/passwd", "/bin/sh"} {
		var st unix.Stat_t
		if err := unix.Stat(target, &st); err != nil {
			t.sealed++
			continue
		}
		if st.Dev == here.Dev {
			t.leak(target + " is on the file system of " + dir)
			continue
		}
		path := scratchName(dir)
		err := unix.Linkat(unix.AT_FDCWD, target, unix.AT_FDCWD, path, unix.AT_SYMLINK_FOLLOW)
		if err == nil {
			_ = unix.Unlink(path)
		}
		if errors.Is(err, unix.EXDEV) {
			err = unix.EPERM
		}
		t.attempt("link to "+target, err)
	}
	return t.result("refused")
}

// scratchName returns a name in dir that nobody uses.
func scratchName(dir string) string {
	return dir + "/tendril-probe-" + strconv.Itoa(os.Getpid())
}

// leftovers can say leak when another account made what it finds; what this account
// made may be of this run.
func leftovers() Result {
	var t tried
	for _, dir := range []string{"/tmp", "/var/tmp", "/dev/shm", os.Getenv("HOME")} {
		names, err := list(dir)
		if dir == "" || err != nil {
			continue
		}
		for _, n := range names {
			var st unix.Stat_t
			path := dir + "/" + n
			if unix.Lstat(path, &st) != nil {
				continue
			}
			switch {
			case int(st.Uid) != os.Getuid():
				t.leak(path + " of uid " + strconv.Itoa(int(st.Uid)))
			case len(t.unknowns) == 0:
				t.unknowns = append(t.unknowns, path+" may be of this run")
			}
			if len(t.leaks) > 4 {
				return t.result("")
			}
		}
	}
	return t.result("empty")
}
