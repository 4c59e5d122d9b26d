//go:build linux

package guest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"tendril/stoma"
)

// Look runs `stoma look PATH...`: it prints what a process inside sees, as one
// [stoma.Look], and returns the exit status.
func Look(paths []string) int {
	look, err := lookAround(paths)
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(look)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "stoma: look: %v\n", err)
		return 1
	}
	return 0
}

func lookAround(paths []string) (stoma.Look, error) {
	l := stoma.Look{Status: map[string]string{}, Namespaces: map[string]string{}, Resources: map[string]uint64{}, Places: map[string]stoma.Place{}}
	status, err := text("/proc/self/status")
	for line := range strings.Lines(status) {
		if key, value, ok := strings.Cut(line, ":"); ok {
			l.Status[key] = strings.TrimSpace(value)
		}
	}
	entries, nsErr := os.ReadDir("/proc/self/ns")
	for _, e := range entries {
		link, err := os.Readlink("/proc/self/ns/" + e.Name())
		nsErr = errors.Join(nsErr, err)
		l.Namespaces[e.Name()] = link
	}
	var devices string
	errs := []error{err, nsErr}
	for path, into := range map[string]*string{"/proc/self/mountinfo": &l.Mounts, "/proc/version": &l.Kernel, "/proc/net/dev": &devices} {
		*into, err = text(path)
		errs = append(errs, err)
	}
	for line := range strings.Lines(devices) {
		if name, _, ok := strings.Cut(line, ":"); ok {
			l.Interfaces = append(l.Interfaces, strings.TrimSpace(name))
		}
	}
	slices.Sort(l.Interfaces)
	for name, which := range map[string]int{"core": unix.RLIMIT_CORE, "nofile": unix.RLIMIT_NOFILE, "nproc": unix.RLIMIT_NPROC} {
		var r unix.Rlimit
		errs = append(errs, unix.Getrlimit(which, &r))
		l.Resources[name] = r.Max
	}
	for _, path := range paths {
		place, err := placeAt(path)
		errs = append(errs, err)
		l.Places[path] = place
	}
	return l, errors.Join(errs...)
}

func placeAt(path string) (stoma.Place, error) {
	var st unix.Stat_t
	var fs unix.Statfs_t
	err := unix.Stat(path, &st)
	if err == nil {
		err = unix.Statfs(path, &fs)
	}
	switch {
	case errors.Is(err, unix.ENOENT):
		return stoma.Place{Missing: true}, nil
	case err != nil:
		return stoma.Place{}, fmt.Errorf("%s: %w", path, err)
	}
	return stoma.Place{Device: uint64(st.Dev), Inode: st.Ino, Size: int64(fs.Blocks) * fs.Bsize}, nil
}

// text reads a file of /proc.
func text(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, stoma.MaxLook))
	return string(data), err
}
