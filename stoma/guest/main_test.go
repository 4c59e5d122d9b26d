//go:build linux

package guest

import (
	"os/exec"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	cfg, err := parse([]string{"--user", "7:8", "--overlay", "/l:/s:/t", "--writable", "/tmp", "--pids", "9", "--listen", "a=80", "--listen", "b=81"})
	if err != nil {
		t.Fatal(err)
	}
	if cfg.uid != 7 || cfg.gid != 8 || *cfg.overlay != (overlay{"/l", "/s", "/t"}) || cfg.pids != 9 ||
		len(cfg.listen) != 2 || cfg.listen[1] != (listener{"b", 81}) || cfg.writable[0] != "/tmp" {
		t.Errorf("%+v", cfg)
	}
	if cfg, err = parse([]string{"--user", "7:8", "--plain", "/w", "--disk", "4096", "--writable", "/tmp", "--pids", "9"}); err != nil || cfg.plain != "/w" || cfg.disk != 4096 {
		t.Errorf("%+v, %v", cfg, err)
	}
	for _, bad := range []string{
		"--user 1:1 --plain /w", "--user 1:1 --disk 1", "--user 1:1 --plain w --disk 1", "--user 1:1 --plain /w --disk 0", "--user 1:1 --plain /w --disk x",
		"--user 1:1 --plain /w --disk 1 --own-root", "--user 1:1 --plain /w --disk 1 --overlay /a:/b:/c",
		"", "--user 0:1", "--user 1", "--user x:1", "--user 1:0", "--user -1:1",
		"--user 1:1 extra", "--user 1:1 --unknown", "--user 1:1 --pids 1",
		"--user 1:1 --writable /tmp", "--user 1:1 --own-root",
		"--user 1:1 --overlay /a:/b", "--user 1:1 --overlay a:/b:/c", "--user 1:1 --overlay /a,x:/b:/c", "--user 1:1 --overlay /a:/b\\:/c",
		"--user 1:1 --overlay /a:/b:/c --pids 0", "--user 1:1 --overlay /a:/b:/c --writable tmp",
		"--user 1:1 --listen a", "--user 1:1 --listen =1", "--user 1:1 --listen a=0", "--user 1:1 --listen a=65536",
	} {
		if _, err := parse(strings.Fields(bad)); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}

// TestRefusesToBeAnOrdinaryProcess matters because PID 1 ends every process that
// it can see.
func TestRefusesToBeAnOrdinaryProcess(t *testing.T) {
	if err := run([]string{"--user", "1:1"}); err == nil || !strings.Contains(err.Error(), "PID 1") {
		t.Errorf("run: %v", err)
	}
}

func TestSearchPath(t *testing.T) {
	for want, env := range map[string][]string{
		defaultPath: {"PATHX=/a", "XPATH=/b"},
		"/b":        {"PATH=/a", "PATH=/b"},
		"":          {"PATH="},
	} {
		if got := searchPath(env); got != want {
			t.Errorf("%q: %q, want %q", env, got, want)
		}
	}
}

// TestProcessesKnowsStrangeNames starts a process whose name tries to look like
// other fields of its stat file.
func TestProcessesKnowsStrangeNames(t *testing.T) {
	cmd := exec.Command("sh", "-c", `printf ') Z 1 1 (' >/proc/self/comm; echo ready; read x`)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = in.Close()
		_ = cmd.Wait() // the shell's read fails at the end of its input
	}()
	if _, err := out.Read(make([]byte, 8)); err != nil {
		t.Fatal(err)
	}
	for _, p := range processes() {
		if p.pid == cmd.Process.Pid {
			return
		}
	}
	t.Error("the process is not listed")
}
