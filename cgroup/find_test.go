//go:build linux

package cgroup

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// fakeTree makes the files that path discovery reads. It stands in for hosts that this
// one is not; what a group does is tested on a real one.
func fakeTree(t *testing.T, mountinfo, self string, files map[string]string, closed ...string) tree {
	t.Helper()
	root := t.TempDir()
	for path, content := range files {
		full := filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(full, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for name, content := range map[string]string{"mountinfo": mountinfo, "self": self} {
		if err := os.WriteFile(filepath.Join(root, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return tree{
		mountinfo: filepath.Join(root, "mountinfo"),
		self:      filepath.Join(root, "self"),
		prefix:    root,
		uid:       os.Getuid(),
		writable: func(dir string) bool {
			return exists(dir) && !slices.ContainsFunc(closed, func(c string) bool {
				rel := strings.TrimPrefix(dir, root)
				return rel == c || rel == c+"/cgroup.procs"
			})
		},
	}
}

// unifiedGroup is the files of one group of version 2.
func unifiedGroup(files map[string]string, dir, available, given, procs string) {
	files[dir+"/cgroup.controllers"] = available
	files[dir+"/cgroup.subtree_control"] = given
	files[dir+"/cgroup.procs"] = procs
}

const v2Mount = "29 23 0:25 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"

// delegate makes the groups of a user whose service manager was given a subtree.
func delegated() map[string]string {
	files := map[string]string{}
	top := "/sys/fs/cgroup"
	unifiedGroup(files, top, "cpuset cpu io memory pids", "cpu memory pids", "")
	unifiedGroup(files, top+"/user.slice", "cpu memory pids", "cpu memory pids", "")
	unifiedGroup(files, top+"/user.slice/user-1000.slice", "cpu memory pids", "cpu memory pids", "")
	service := top + "/user.slice/user-1000.slice/user@1000.service"
	unifiedGroup(files, service, "cpu memory pids", "memory pids", "")
	unifiedGroup(files, service+"/app.slice", "memory pids", "memory pids", "")
	unifiedGroup(files, service+"/app.slice/term.scope", "memory pids", "", "4711\n")
	return files
}

var abovePlaces = []string{"/sys/fs/cgroup", "/sys/fs/cgroup/user.slice", "/sys/fs/cgroup/user.slice/user-1000.slice"}

func TestDelegatedSubtree(t *testing.T) {
	const service = "/sys/fs/cgroup/user.slice/user-1000.slice/user@1000.service"
	tr := fakeTree(t, v2Mount, "0::/user.slice/user-1000.slice/user@1000.service/app.slice/term.scope\n", delegated(), abovePlaces...)
	tr.uid = os.Getuid()
	places, missing, err := findPlaces(tr)
	if err != nil {
		t.Fatal(err)
	}
	if len(places) != 1 || !places[0].unified {
		t.Fatalf("places %+v", places)
	}
	// app.slice is nearer and has memory and pids; its parent can give all three, if
	// this account may switch cpu on in it. As root only its own group may be changed.
	want, controllers := service, []string{"memory", "pids", "cpu"}
	if tr.uid == 0 {
		want, controllers = service+"/app.slice", []string{"memory", "pids"}
	}
	if got := strings.TrimPrefix(places[0].dir, tr.prefix); got != want {
		t.Errorf("a child would be made in %s, want %s", got, want)
	}
	if diff := cmp.Diff(controllers, places[0].controllers); diff != "" {
		t.Errorf("controllers (-want +got):\n%s", diff)
	}
	if tr.uid != 0 && !slices.Equal(places[0].enable, []string{"cpu"}) {
		t.Errorf("would switch on %q", places[0].enable)
	}
	if tr.uid == 0 && len(missing) != 1 {
		t.Errorf("missing %q, want cpu alone", missing)
	}
}

func TestSessionScopeIsNotDelegated(t *testing.T) {
	files := delegated()
	unifiedGroup(files, "/sys/fs/cgroup/user.slice/user-1000.slice/session-2.scope", "memory pids", "", "4711\n")
	tr := fakeTree(t, v2Mount, "0::/user.slice/user-1000.slice/session-2.scope\n", files,
		append([]string{"/sys/fs/cgroup/user.slice/user-1000.slice/session-2.scope"}, abovePlaces...)...)
	if _, _, err := findPlaces(tr); !errors.Is(err, ErrUnavailable) {
		t.Errorf("says %v", err)
	}
}

func TestRootTakesTheNearestThatServes(t *testing.T) {
	tr := fakeTree(t, v2Mount, "0::/user.slice/user-1000.slice/user@1000.service/app.slice/term.scope\n", delegated())
	tr.uid = 0
	places, _, err := findPlaces(tr)
	if err != nil {
		t.Fatal(err)
	}
	const want = "/sys/fs/cgroup/user.slice/user-1000.slice"
	if got := strings.TrimPrefix(places[0].dir, tr.prefix); got != want || len(places[0].enable) > 0 {
		t.Errorf("a child would be made in %s (switching on %q), want %s as it is", got, places[0].enable, want)
	}
}

func TestInternalProcessesKeepControllersOff(t *testing.T) {
	files := map[string]string{}
	unifiedGroup(files, "/sys/fs/cgroup/box", "cpu memory pids", "", "1\n2\n")
	// In a cgroup namespace our group is mounted as the root, and is none.
	tr := fakeTree(t, "29 23 0:25 /box /sys/fs/cgroup/box rw - cgroup2 cgroup2 rw\n", "0::/box\n", files)
	if _, _, err := findPlaces(tr); !errors.Is(err, ErrUnavailable) {
		t.Errorf("says %v", err)
	}
}

func TestLegacyHierarchiesHaveTheirOwnPaths(t *testing.T) {
	files := map[string]string{"/cg/cpu,cpuacct/x": "", "/cg/memory/session/x": "", "/cg/pids/x": "", "/cg/freezer/x": "", "/cg/unified/cgroup.controllers": "hugetlb"}
	const mountinfo = `32 31 0:29 / /cg/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct
35 31 0:32 /machine /cg/memory rw - cgroup cgroup rw,memory
39 31 0:36 / /cg/pids rw - cgroup cgroup rw,pids
37 31 0:34 / /cg/freezer rw - cgroup cgroup rw,freezer
41 31 0:38 / /cg/unified rw - cgroup2 cgroup2 rw
`
	tr := fakeTree(t, mountinfo, "8:pids:/\n6:freezer:/\n4:memory:/machine/session\n1:cpu,cpuacct:/\n0::/\n", files, "/cg/pids")
	places, missing, err := findPlaces(tr)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string][]string{}
	for _, p := range places {
		got[strings.TrimPrefix(p.dir, tr.prefix)] = p.controllers
	}
	want := map[string][]string{"/cg/cpu,cpuacct": {"cpu", "cpuacct"}, "/cg/memory/session": {"memory"}, "/cg/freezer": {"freezer"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("places (-want +got):\n%s", diff)
	}
	if len(missing) != 1 || !strings.HasPrefix(missing[0], "pids: ") {
		t.Errorf("missing %q, want pids, which cannot be written", missing)
	}
}

func TestNothingMounted(t *testing.T) {
	tr := fakeTree(t, "22 27 0:21 / /proc rw - proc proc rw\n", "", nil)
	if _, _, err := findPlaces(tr); !errors.Is(err, ErrUnavailable) {
		t.Errorf("says %v", err)
	}
}

func TestUnifiedGroupIsSetUp(t *testing.T) {
	files := map[string]string{}
	unifiedGroup(files, "/cg", "cpu memory pids", "cpu memory pids", "")
	tr := fakeTree(t, "29 23 0:25 / /cg rw - cgroup2 cgroup2 rw\n", "0::/\n", files)
	// Files of a real group come with it; here nothing makes them, and the error has to
	// name the first that is missing and leave nothing.
	_, err := create(tr, "tendril-x", Limits{CPUs: 1, MemoryMax: 1 << 20, Pids: 10})
	if err == nil || !strings.Contains(err.Error(), "cpu.max") || exists(filepath.Join(tr.prefix, "cg/tendril-x")) {
		t.Errorf("says %v", err)
	}
}
