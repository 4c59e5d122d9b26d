package cgroup

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseValue(t *testing.T) {
	for in, want := range map[string]int64{"0\n": 0, "max\n": unlimited, "-1\n": unlimited, "4096": 4096, "9223372036854771712\n": 9223372036854771712, "18446744073709551615\n": 1<<63 - 1} {
		if got, err := parseValue(in); err != nil || got != want {
			t.Errorf("%q is %d (%v), want %d", in, got, err, want)
		}
	}
	for _, in := range []string{"", "x", "-2", "1 2", "1\n2\n", "18446744073709551616"} {
		if got, err := parseValue(in); err == nil {
			t.Errorf("%q was taken for %d", in, got)
		}
	}
}

func TestParseMounts(t *testing.T) {
	got := parseMounts("1 2 0:3 / /a\\040b rw shared:1 - cgroup cgroup rw,cpu\n1 2 0:3 / rel rw - cgroup2 c rw\n1 2 0:3 / /x rw - ext4 /dev/x rw\nnonsense\n")
	want := []mount{{root: "/", target: "/a b", controllers: []string{"rw", "cpu"}}}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(mount{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestLocate(t *testing.T) {
	for _, c := range []struct{ root, group, want string }{
		{"/", "/", "/m"},
		{"/", "/a/b", "/m/a/b"},
		{"/a", "/a", "/m"},
		{"/a", "/a/b", "/m/b"},
		{"/a", "/ab", ""},
		{"/a", "/", ""},
		{"/", "/../up", ""},
		{"/", "", ""},
	} {
		got, ok := mount{root: c.root, target: "/m"}.locate(c.group)
		if got != c.want || ok != (c.want != "") {
			t.Errorf("%s below %s is %q (%v), want %q", c.group, c.root, got, ok, c.want)
		}
	}
}

func FuzzParseMounts(f *testing.F) {
	f.Add("29 23 0:25 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n", "/a/b")
	f.Add("32 31 0:29 /x /sys/fs/cgroup/cpu\\040 rw - cgroup cgroup rw,cpu\n", "/x/../y")
	f.Add(" - \n\\777 - cgroup", "")
	f.Fuzz(func(t *testing.T, mountinfo, group string) {
		for _, m := range parseMounts(mountinfo) {
			dir, ok := m.locate(group)
			if target := filepath.Clean(m.target); ok && dir != target && !strings.HasPrefix(dir, strings.TrimSuffix(target, "/")+"/") {
				t.Errorf("group %q is at %q, outside of %q", group, dir, target)
			}
		}
	})
}

func FuzzParseFiles(f *testing.F) {
	for _, s := range []string{"0::/\n", "4:memory:/a\n1:cpu,cpuacct:/\n", "max 100000\n", "1 0\n", "nr_throttled 3\noom_kill 1\n", "1\n2\n0\n", "max", "1:name=systemd:/x:y\n"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, data string) {
		for _, group := range parseSelf(data) {
			if !filepath.IsAbs(group) {
				t.Errorf("group %q is not absolute", group)
			}
		}
		if n, err := parseValue(data); err == nil && n < unlimited {
			t.Errorf("value %d", n)
		}
		if _, period, err := parseCPUMax(data); err == nil && period <= 0 {
			t.Errorf("period %d", period)
		}
		for _, pid := range parsePids(data) {
			if pid <= 0 {
				t.Errorf("pid %d", pid)
			}
		}
		_ = parseFlat(data, "oom_kill")
	})
}
