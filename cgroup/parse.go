package cgroup

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// mount is a mounted cgroup hierarchy.
type mount struct {
	root        string // the group that is at target, usually "/"
	target      string
	unified     bool
	controllers []string // version 1 only
}

// locate returns the directory of a group as seen through the mount.
func (m mount) locate(group string) (string, bool) {
	if group == "" {
		return "", false
	}
	if m.root != "/" {
		rest, ok := strings.CutPrefix(group, m.root)
		if !ok || rest != "" && rest[0] != '/' {
			return "", false
		}
		group = "/" + strings.TrimPrefix(rest, "/")
	}
	if slices.Contains(strings.Split(group, "/"), "..") {
		return "", false // outside of our cgroup namespace (cgroup_namespaces(7))
	}
	return filepath.Join(m.target, group), true
}

// parseMounts reads the cgroup file systems out of proc_pid_mountinfo(5). Lines that
// are not understood are skipped.
func parseMounts(mountinfo string) []mount {
	var out []mount
	for line := range strings.Lines(mountinfo) {
		left, right, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " - ")
		l, r := strings.Fields(left), strings.Fields(right)
		if !ok || len(l) < 6 || len(r) < 3 {
			continue
		}
		m := mount{root: unescape(l[3]), target: unescape(l[4])}
		if !filepath.IsAbs(m.target) || !filepath.IsAbs(m.root) {
			continue
		}
		switch r[0] {
		case "cgroup2":
			m.unified = true
		case "cgroup":
			m.controllers = strings.Split(r[2], ",")
		default:
			continue
		}
		out = append(out, m)
	}
	return out
}

// unescape undoes the octal escapes of mountinfo (\040 is a space).
func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+4 <= len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// parseSelf reads proc_pid_cgroup(5): controller -> group, and "" -> the group of
// version 2.
func parseSelf(data string) map[string]string {
	out := map[string]string{}
	for line := range strings.Lines(data) {
		field := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(field) != 3 || !filepath.IsAbs(field[2]) {
			continue
		}
		for c := range strings.SplitSeq(field[1], ",") {
			out[c] = field[2]
		}
	}
	return out
}

// unlimited is what "no bound" reads as.
const unlimited = -1

var errNotANumber = errors.New("not a number")

// parseValue reads one value of a control file: a number, "max", or "-1" for none.
// Version 1 writes no bound as a number near 2^63, which is returned as it is.
func parseValue(data string) (int64, error) {
	s := strings.TrimSuffix(data, "\n")
	if s == "max" || s == "-1" {
		return unlimited, nil
	}
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%w: %.40q", errNotANumber, s)
	}
	if n > 1<<63-1 {
		return 1<<63 - 1, nil
	}
	return int64(n), nil
}

// parseCPUMax reads cpu.max of version 2: "QUOTA PERIOD" in microseconds.
func parseCPUMax(data string) (quota, period int64, err error) {
	f := strings.Fields(data)
	if len(f) != 2 {
		return 0, 0, fmt.Errorf("%w: %.40q", errNotANumber, data)
	}
	if quota, err = parseValue(f[0]); err != nil {
		return 0, 0, err
	}
	if period, err = parseValue(f[1]); err != nil {
		return 0, 0, err
	}
	if period <= 0 {
		return 0, 0, fmt.Errorf("%w: period %.40q", errNotANumber, f[1])
	}
	return quota, period, nil
}

// parseFlat reads one key of a flat keyed file (cpu.stat, memory.events). An absent
// key is 0: kernels add keys.
func parseFlat(data, key string) uint64 {
	for line := range strings.Lines(data) {
		f := strings.Fields(line)
		if len(f) == 2 && f[0] == key {
			n, err := strconv.ParseUint(f[1], 10, 64)
			if err == nil {
				return n
			}
		}
	}
	return 0
}

// parsePids reads cgroup.procs. Processes of another pid namespace read as 0 and are
// left out.
func parsePids(data string) []int {
	var out []int
	for line := range strings.Lines(data) {
		if n, err := strconv.ParseInt(strings.TrimSuffix(line, "\n"), 10, 32); err == nil && n > 0 {
			out = append(out, int(n))
		}
	}
	return out
}
