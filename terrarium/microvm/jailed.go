//go:build linux

package microvm

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"tendril/fault"
	"tendril/terrarium/confine"
	"tendril/terrarium/microvm/jail"
)

// showProgram lets the jail see a program with what it needs: the libraries of the system,
// and directories with data of its own, those of them that are there.
func showProgram(o *jail.Order, path string, data ...string) {
	for _, name := range []string{"/lib", "/lib64"} {
		if target, err := os.Readlink(name); err == nil {
			o.Links[name] = target
		} else {
			data = append(data, name)
		}
	}
	data = append(data, "/usr/lib", "/usr/lib64")
	if prefix := filepath.Dir(filepath.Dir(path)); prefix != "/usr" && prefix != "/" {
		data = append(data, prefix) // what was built elsewhere has all of its own there
	} else {
		o.Shown = append(o.Shown, jail.Shown{Source: path, Target: path})
	}
	for _, dir := range data {
		if info, err := os.Lstat(dir); err == nil && info.IsDir() {
			o.Shown = append(o.Shown, jail.Shown{Source: dir, Target: dir})
		}
	}
	const cache = "/etc/ld.so.cache"
	if _, err := os.Stat(cache); err == nil {
		o.Shown = append(o.Shown, jail.Shown{Source: cache, Target: cache})
	}
}

// testOnlyDevice stands in for the device of KVM in tests.
var testOnlyDevice string

func kvmDevice() string { return cmp.Or(testOnlyDevice, "/dev/kvm") }

// kvmOpens returns nil when this process may use KVM, and so let another one use it.
func kvmOpens() error {
	f, err := os.OpenFile(kvmDevice(), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return f.Close()
}

// mounted is a mount of the jail.
type mounted struct {
	target   string
	writable bool
}

// mountsOf lists what the jail mounts.
func mountsOf(o jail.Order) []mounted {
	var list []mounted
	if o.Root != "" {
		list = append(list, mounted{"/", false})
	}
	for _, s := range o.Shown {
		list = append(list, mounted{s.Target, s.Writable})
	}
	switch {
	case len(o.Devices) == 0:
	case o.UID > 0: // nodes of its own
		list = append(list, mounted{jail.DeviceDir, false})
	default:
		for _, d := range o.Devices {
			list = append(list, mounted{d, true})
		}
	}
	return list
}

// Accounts from firstUID on are assigned by nobody (systemd.io/UIDS-GIDS); there are
// freeUIDs of them.
const (
	firstUID = 1_879_048_192
	freeUIDs = 1 << 28
)

// accountFor is a uid that belongs to a run alone, as far as 28 bits tell runs apart. It is
// 0 for an ordinary user, whose machines have a user namespace instead.
func accountFor(run string) (int, error) {
	if confine.Rootless() {
		return 0, nil
	}
	sum := fnv.New32a()
	sum.Write([]byte(run))
	uid := firstUID + int(sum.Sum32()%freeUIDs)
	for _, path := range []string{"/proc/self/uid_map", "/proc/self/gid_map"} {
		text, err := os.ReadFile(path)
		if err != nil {
			return 0, fault.New(fault.Unavailable, "looking for an account for the machine's process: %w", err)
		}
		if !holdsID(string(text), uid) {
			return 0, fault.New(fault.Unavailable, "the machine's process has no account of its own: %s has no %d", path, uid).
				WithHint("run tendril as an ordinary user, or where root has all accounts")
		}
	}
	return uid, nil
}

// holdsID reports whether a map of user_namespaces(7) holds an id.
func holdsID(text string, id int) bool {
	return slices.ContainsFunc(slices.Collect(strings.Lines(text)), func(line string) bool {
		var first, outside, count int
		n, err := fmt.Sscan(line, &first, &outside, &count)
		return err == nil && n == 3 && id >= first && id-first < count
	})
}
