//go:build linux

package docker

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"tendril/stoma"
	"tendril/stoma/binary"
	"tendril/terrarium"
	"tendril/terrarium/docker/dockertest"
	"tendril/terrarium/terrariumtest"
)

// mappedTo is the first of the host's accounts that a container's are mapped to, and mapped
// how many: more than the Sprout's number.
const mappedTo, mapped = 400000, 131072

// withFiles is a command that starts another with its own files in the place of the host's.
func withFiles(t *testing.T, dir string, contents map[string]string) []string {
	t.Helper()
	script := "set -e\n"
	for place, content := range contents {
		file := filepath.Join(dir, strings.ReplaceAll(place[1:], "/", "-"))
		if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(place); err != nil {
			t.Skipf("this host maps no accounts: %v", err)
		}
		script += fmt.Sprintf("mount --bind '%s' %s\n", file, place)
	}
	return []string{"unshare", "--mount", "sh", "-c", script + `exec "$@"`, "sh"}
}

// TestMappedAccounts: a daemon that maps accounts makes a wall behind which the Sprout is
// somebody else on the host than its number says.
func TestMappedAccounts(t *testing.T) {
	ranges := fmt.Sprintf("nobody:%d:%d\nnogroup:%d:%d\n", mappedTo, mapped, mappedTo, mapped)
	p, _ := onDaemon(t, runc, func(dir string) dockertest.Options {
		if err := os.Chmod(dir, 0o711); err != nil {
			t.Fatal(err)
		}
		return dockertest.Options{
			Settings: map[string]any{"userns-remap": "nobody:nogroup"},
			Around:   withFiles(t, dir, map[string]string{"/etc/subuid": ranges, "/etc/subgid": ranges}),
		}
	})
	worksThere(t, p, mappedTo+terrarium.DefaultUser.UID)
}

// rootlessVariable names the daemon to a process of the ordinary user's whose daemon it is.
const rootlessVariable = "TENDRIL_TEST_ROOTLESS"

// TestRootlessDaemon: the daemon is an ordinary user's, who has the control groups that were
// delegated to him, which may be none. He is the one who uses it.
func TestRootlessDaemon(t *testing.T) {
	if host := os.Getenv(rootlessVariable); host != "" {
		guest, err := binary.Stoma.Install(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		worksThere(t, newProvider(Config{Host: host, Stoma: guest, Site: site}, runc), mappedTo-1+terrarium.DefaultUser.UID)
		return
	}
	for program, from := range map[string]string{"rootlesskit": "rootlesskit", "newuidmap": "uidmap"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("there is no %s: apt-get install %s", program, from)
		}
	}
	uid := terrariumtest.OrdinaryUID
	passwd, err := os.ReadFile("/etc/passwd")
	if err != nil {
		t.Fatal(err)
	}
	ranges := fmt.Sprintf("tendril-rootless:%d:%d\n", mappedTo, mapped)
	p, _ := onDaemon(t, runc, func(dir string) dockertest.Options {
		home := filepath.Join(dir, "home")
		if err := errors.Join(os.Mkdir(home, 0o700), os.Chown(home, uid, uid), os.Chown(dir, uid, uid)); err != nil {
			t.Fatal(err)
		}
		around := withFiles(t, dir, map[string]string{
			"/etc/subuid": ranges, "/etc/subgid": ranges,
			"/etc/passwd": string(passwd) + fmt.Sprintf("tendril-rootless:x:%d:%d::%s:/bin/sh\n", uid, uid, home),
		})
		return dockertest.Options{
			Args: []string{"--rootless", "--storage-driver", "vfs"},
			Around: slices.Concat(around, []string{
				"setpriv", "--reuid", fmt.Sprint(uid), "--regid", fmt.Sprint(uid), "--clear-groups",
				"env", "HOME=" + home, "XDG_RUNTIME_DIR=" + home,
				"rootlesskit", "--state-dir", filepath.Join(dir, "kit"), "--net", "host", "--copy-up", "/etc", "--copy-up", "/run",
				// What another daemon has there is only a link to it in the copy.
				"sh", "-c", `rm -f /run/docker /run/containerd; exec "$@"`, "sh",
			}),
		}
	})
	terrariumtest.AsOrdinaryUserWith(t, []string{rootlessVariable + "=" + p.Host}, nil, "TestRootlessDaemon")
}

// worksThere wants a Terrarium in which a command works, as somebody of the host who is uid.
func worksThere(t *testing.T, p *provider, uid uint32) {
	t.Helper()
	spec := terrariumtest.HostSpec(t, "mapped")
	opened, err := terrarium.Validated(p).Open(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	process, err := opened.Stoma().Exec(t.Context(), stoma.ExecRequest{Argv: []string{"sh", "-c", "id -u >f && sleep 86400"}, Dir: workspace})
	if err != nil {
		t.Fatal(err)
	}
	defer process.Close()
	seen := false
	for _, pid := range withIn(spec.Workspace.Dir) {
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		seen = seen || err == nil && strings.Contains(string(status), fmt.Sprintf("\nUid:\t%d\t%d\t%d\t%d\n", uid, uid, uid, uid))
	}
	if !seen {
		t.Errorf("nobody of the processes %v is the account %d of the host", withIn(spec.Workspace.Dir), uid)
	}
	for _, row := range opened.Boundary() {
		if row.Field == "User" {
			t.Logf("%+v", row)
		}
	}
	if err := opened.Close(within(t)); err != nil {
		t.Error(err)
	}
	terrariumtest.LeavesNothing(t, spec, "after it was closed")
	p.leavesNoContainer(t, spec.Run)
}
