//go:build linux

package guest_test

import (
	"archive/tar"
	"strings"
	"testing"

	"tendril/stoma"
)

// want runs a script and wants its output.
func wantOutput(t *testing.T, c *stoma.Client, script, want string) {
	t.Helper()
	r := do(t, c, sh(script), "")
	if r.stdout != want {
		t.Errorf("%s\n got %q (stderr %q)\nwant %q", script, r.stdout, r.stderr, want)
	}
}

func TestSproutHasNothing(t *testing.T) {
	onEach(t, setup{}, func(t *testing.T, c *stoma.Client) {
		wantOutput(t, c, "id -u; id -g; id -G", "70707\n70707\n70707\n")
		wantOutput(t, c, "umask", "0022\n")
		wantOutput(t, c, "pwd", "/tmp\n")
		// The fourth is the directory that ls reads.
		if r := do(t, c, request("ls", "/proc/self/fd"), ""); r.stdout != "0\n1\n2\n3\n" {
			t.Errorf("descriptors %q", r.stdout)
		}
		wantOutput(t, c, `grep -E '^(Cap|NoNewPrivs)' /proc/self/status | tr '\t' ' '`,
			"CapInh: 0000000000000000\nCapPrm: 0000000000000000\nCapEff: 0000000000000000\n"+
				"CapBnd: 0000000000000000\nCapAmb: 0000000000000000\nNoNewPrivs: 1\n")
		wantOutput(t, c, "env | grep -v '^PWD=\\|^SHLVL=\\|^_=' | sort", "LC_ALL=C\nPATH=/usr/bin:/bin\n")
		wantOutput(t, c, "set -- $(cat /proc/self/stat); [ $6 != 0 ] && [ $6 != 1 ] && echo own session", "own session\n")
	})
}

func TestPID1IsOutOfReach(t *testing.T) {
	onEach(t, setup{root: true}, func(t *testing.T, c *stoma.Client) {
		wantOutput(t, c, `grep -E '^(Cap(Inh|Prm|Eff|Bnd|Amb)|NoNewPrivs|Uid)' /proc/1/status | tr '\t' ' '`,
			"Uid: 0 0 0 0\nCapInh: 0000000000000000\nCapPrm: 00000000000000e0\nCapEff: 00000000000000e0\n"+
				"CapBnd: 0000000000000000\nCapAmb: 0000000000000000\nNoNewPrivs: 1\n")
		for _, attack := range []string{
			"kill -9 1", "kill -STOP 1", "kill -TERM 1",
			"echo x >/proc/1/fd/0", "echo x >/proc/1/fd/1", "echo x >/proc/1/fd/2",
			"ls /proc/1/fd/", "cat /proc/1/environ", "dd if=/proc/1/mem bs=1 count=1",
			"ls /.tendril/scratch", "ls /.tendril/scratch/cgroup",
			"echo 0 >/.tendril/scratch/cgroup/cgroup.procs",
			"cat /proc/1/root/.tendril/scratch/cgroup/cgroup.procs",
		} {
			if r := do(t, c, sh(attack), ""); r.exit.Code == nil || *r.exit.Code == 0 {
				t.Errorf("%s: exit %s, stdout %q", attack, show(r.exit), r.stdout)
			}
		}
		// The carrier's own descriptors are above 9.
		wantOutput(t, c, `i=0; while [ $i -lt 64 ]; do (echo x >/proc/1/fd/$i) 2>/dev/null && echo "wrote to $i"; i=$((i+1)); done`, "")
		// A trace of PID 1 would need a debugger; the kernel's own answer is in
		// what it shows of a process that may be traced.
		if r := do(t, c, sh("cat /proc/1/maps"), ""); r.stdout != "" {
			t.Errorf("the memory map of PID 1 is shown: %q", r.stdout)
		}
		wantCode(t, do(t, c, request("true"), ""), 0)
	})
}

func TestLookup(t *testing.T) {
	onEach(t, setup{}, func(t *testing.T, c *stoma.Client) {
		wantCode(t, do(t, c, sh(`
			mkdir -p /tmp/bin /tmp/shut; cd /tmp/bin
			printf '#!/bin/sh\necho "$0 $1"\n' >ok; chmod 755 ok
			cp ok closed; chmod 644 closed
			printf '#!/no/such/shell\n' >nosh; chmod 755 nosh
			printf 'neither\n' >text; chmod 755 text
			mkdir folder; chmod 000 /tmp/shut`), ""), 0)
		path := []string{"PATH=/tmp/shut:/nonexistent:/tmp/bin:/usr/bin"}
		for _, tc := range []struct {
			argv0, dir, reason string
		}{
			{"ok", "/", ""},
			{"/tmp/bin/ok", "/", ""},
			{"./ok", "/tmp/bin", ""},
			{"bin/ok", "/tmp", ""},
			{"missing", "/", stoma.NotFound},
			{"./missing", "/tmp", stoma.NotFound},
			{"closed", "/", stoma.NotExecutable},
			{"folder", "/", stoma.NotExecutable},
			{"/etc/alternatives", "/", stoma.NotExecutable},
			{"nosh", "/", stoma.NoInterpreter},
			{"text", "/", stoma.BadFormat},
			{"ok", "/missing", stoma.NoDirectory},
			{"ok", "/tmp/shut", stoma.NoDirectory},
			{"ok", "/tmp/bin/ok", stoma.NoDirectory},
			{"/.tendril/stoma", "/", ""},
			{"/.tendril/scratch/x", "/", stoma.NotFound},
		} {
			p, err := c.Exec(ctx(t), stoma.ExecRequest{Argv: []string{tc.argv0, "arg"}, Env: path, Dir: tc.dir})
			if tc.reason == "" {
				if err != nil {
					t.Errorf("%s in %s: %v", tc.argv0, tc.dir, err)
					continue
				}
				_ = p.Close()
				continue
			}
			e, ok := err.(*stoma.ExecError)
			if !ok || e.Reason != tc.reason || e.Name != tc.argv0 {
				t.Errorf("%s in %s: %v, want %q", tc.argv0, tc.dir, err, tc.reason)
			}
		}
	})
}

func TestArbitraryBytes(t *testing.T) {
	onEach(t, setup{}, func(t *testing.T, c *stoma.Client) {
		r := stoma.ExecRequest{
			Argv: []string{"sh", "-c", `printf '%s|%s|%s' "$1" "$2" "$X"`, "sh", "a\xff\nb", ""},
			Env:  []string{"PATH=/usr/bin", "X=\xfe=\x01"},
		}
		res := do(t, c, r, "")
		if want := "a\xff\nb||\xfe=\x01"; res.stdout != want {
			t.Errorf("got %q, want %q", res.stdout, want)
		}
		for name, r := range map[string]stoma.ExecRequest{
			"no command":   {},
			"NUL":          {Argv: []string{"a\x00b"}},
			"bad env":      {Argv: []string{"a"}, Env: []string{"=x"}},
			"relative dir": {Argv: []string{"a"}, Dir: "x"},
			"too long":     {Argv: []string{"a", strings.Repeat("x", stoma.MaxHeader)}},
		} {
			if _, err := c.Exec(ctx(t), r); err == nil {
				t.Errorf("%s: started", name)
			}
		}
	})
}

func TestConfined(t *testing.T) {
	s := setup{root: true, args: []string{"--own-dev", "--own-root", "--writable", "/var/tmp"}}
	onEach(t, s, func(t *testing.T, c *stoma.Client) {
		wantOutput(t, c, "unshare -U true 2>/dev/null || unshare -Ur true 2>/dev/null || echo no user namespace", "no user namespace\n")
		wantOutput(t, c, "ls /dev | grep -vx 'null\\|zero\\|full\\|random\\|urandom\\|tty\\|console\\|ptmx\\|pts\\|shm\\|mqueue\\|fd\\|std.*'", "")
		// The second view of the root is as the first.
		wantOutput(t, c, "touch /x /usr/x 2>/dev/null; echo x >/var/tmp/f && cat /var/tmp/f; ls /x /usr/x 2>/dev/null", "x\n")
		wantOutput(t, c, "ls /.tendril/scratch 2>&1 >/dev/null | grep -c denied", "1\n")
		inWorkspace(t, c, "echo new >f")
		if got, _ := collect(t, c); len(got) != 1 || got[0] != "file f new\n" {
			t.Errorf("records %q", got)
		}
		if err := c.Put(ctx(t), "", archive(t, tar.Header{Name: "put", Typeflag: tar.TypeReg, Mode: 0o644, Size: 1})); err != nil {
			t.Error(err)
		}
		inWorkspace(t, c, "[ $(cat put) = x ]")
	})
}
