//go:build linux

package rootfs

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// runscVariable names a stock, static runsc for the tests that want a real sandbox.
const runscVariable = "TENDRIL_TEST_RUNSC"

// inSandbox runs a shell script as the Sprout in a gVisor container whose root is the
// view, and returns what it said.
func inSandbox(t *testing.T, v View, script string) string {
	t.Helper()
	runsc := os.Getenv(runscVariable)
	if runsc == "" {
		t.Skipf("%s names no runsc", runscVariable)
	}
	bundle, err := os.MkdirTemp("", "rootfs-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = unix.Unmount(bundle+"/state/null-netns", 0) // runsc leaves it mounted
		if err := os.RemoveAll(bundle); err != nil {
			t.Error(err)
		}
	})
	if err := os.Mkdir(bundle+"/rootfs", 0o700); err != nil {
		t.Fatal(err)
	}
	if err := v.Build(bundle + "/rootfs"); err != nil {
		t.Fatal(err)
	}
	type object = map[string]any
	mounts := []object{
		{"destination": "/proc", "type": "proc", "source": "proc"},
		{"destination": "/tmp", "type": "tmpfs", "source": "tmpfs", "options": []string{"mode=1777", "size=64m"}},
	}
	for _, m := range v.Mounts {
		mounts = append(mounts, object{"destination": m.Target, "type": "bind", "source": m.Source, "options": []string{"rbind", "ro", "nosuid", "nodev"}})
	}
	for _, m := range v.Masks {
		if m.Dir {
			mounts = append(mounts, object{"destination": m.Path, "type": "tmpfs", "source": "tmpfs", "options": []string{"ro", "size=4k", "mode=555"}})
		} else {
			mounts = append(mounts, object{"destination": m.Path, "type": "bind", "source": "/dev/null", "options": []string{"bind", "ro"}})
		}
	}
	config, err := json.Marshal(object{
		"ociVersion": "1.2.0",
		"process": object{
			"user": object{"uid": sprout.UID, "gid": sprout.GID}, "cwd": "/tmp", "noNewPrivileges": true,
			"args": []string{"/bin/sh", "-c", script},
			"env":  []string{"PATH=" + v.Path(os.Getenv("PATH")), "HOME=/tmp"},
		},
		"root":   object{"path": "rootfs", "readonly": true},
		"mounts": mounts,
		"linux":  object{"namespaces": []object{{"type": "pid"}, {"type": "network"}, {"type": "ipc"}, {"type": "uts"}, {"type": "mount"}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(bundle+"/config.json", config, 0o600); err != nil {
		t.Fatal(err)
	}
	flags := []string{"--root", bundle + "/state", "--network=none", "--ignore-cgroups", "--host-uds=none", "--host-fifo=none", "--overlay2=none", "--platform=systrap"}
	if os.Geteuid() == 0 {
		flags = append(flags, "--directfs=false")
	} else {
		flags = append(flags, "--rootless")
	}
	c := exec.Command(runsc, append(flags, "run", "-bundle", bundle, filepath.Base(bundle))...)
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return string(out)
}

func TestToolchainWorksInASandbox(t *testing.T) {
	tools := map[string]string{
		"awk":     `awk 'BEGIN { print "ok" }'`,
		"git":     `git -c init.defaultBranch=x init -q /tmp/g && echo ok`,
		"cc":      `printf 'int main(void) { return 0; }' > /tmp/a.c && cc -o /tmp/a /tmp/a.c && /tmp/a && echo ok`,
		"vi":      `vi --version > /dev/null && echo ok`,
		"perl":    `perl -MPOSIX -e 'print "ok\n"'`,
		"openssl": `openssl req -x509 -newkey rsa:2048 -nodes -subj /CN=x -keyout /tmp/k -out /tmp/c 2> /dev/null && echo ok`,
		"java":    `java -version 2> /dev/null && echo ok`,
		"getent":  `getent passwd sprout > /dev/null && getent hosts localhost > /dev/null && getent services https > /dev/null && ! getent hosts example.com && echo ok`,
		"curl":    `curl --version > /dev/null && echo ok`,
	}
	v := hostView(t)
	var script strings.Builder
	for name, test := range tools {
		if path := lookPath(name, defaultPath); path == "" {
			t.Logf("%s is not on this host", name)
			delete(tools, name)
			continue
		}
		fmt.Fprintf(&script, "( echo %s: $( %s ) ) 2>&1\n", name, test)
	}
	out := inSandbox(t, v, script.String())
	for name := range tools {
		if !strings.Contains(out, name+": ok\n") {
			t.Errorf("%s does not work inside", name)
		}
	}
	if t.Failed() {
		t.Log(out)
	}
}

func TestNothingElseIsInTheSandbox(t *testing.T) {
	dir := workDir(t)
	file(t, dir+"/bin/tool", "#!/bin/sh\necho from the tool\n")
	if err := os.Chmod(dir+"/bin/tool", 0o755); err != nil {
		t.Fatal(err)
	}
	file(t, dir+"/lib/test/id_rsa", "a test key")
	file(t, dir+"/../beside", "")
	defer os.Remove(dir + "/../beside")
	out := inSandbox(t, hostView(t, dir), `
ls -A /home /root /srv /mnt /media /opt /run /var/lib /boot 2>/dev/null | grep -v -e : -e '^$' -e '^sprout$'
for f in /etc/shadow /etc/gshadow /etc/ssh /etc/ssl/private /etc/gitconfig /etc/npmrc /etc/pip.conf /etc/machine-id; do test -e $f && echo "there: $f"; done
for d in /usr/etc /usr/local/etc /usr/src; do ls -A $d 2>/dev/null; done
for d in / /etc /usr /usr/bin /usr/local/bin /etc/alternatives /etc/ssl/certs `+dir+`; do (echo x > $d/written) 2>/dev/null && echo "written: $d"; done
ls -A `+filepath.Dir(dir)+` | grep -v '^`+filepath.Base(dir)+`$'
ls -A `+dir+`/lib/test
cat `+dir+`/lib/test/id_rsa 2>/dev/null
`+dir+`/bin/tool
`)
	if out != "from the tool\n" {
		t.Errorf("inside there is also:\n%s", out)
	}
}
