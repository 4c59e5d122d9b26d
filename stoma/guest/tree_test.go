//go:build linux

package guest_test

import (
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"tendril/stoma"
)

// escape starts processes that try to outlive their command: in the background,
// in a session of their own, twice forked, deaf to every signal, and holding the
// command's output open.
const escape = `
	sleep 1000 &
	setsid sleep 1000 &
	(setsid sh -c 'trap "" TERM HUP INT; (sleep 1000 & sleep 1000) & sleep 1000' &)
	setsid setsid sh -c 'while :; do sleep 1; done' &
`

func alive(t *testing.T, c *stoma.Client) int {
	t.Helper()
	s, err := c.Stat(ctx(t))
	if err != nil {
		t.Fatal(err)
	}
	return s.Processes
}

func TestTreeEndsWithItsCommand(t *testing.T) {
	onEach(t, setup{}, func(t *testing.T, c *stoma.Client) {
		r := do(t, c, sh(escape+"echo done; exit 7"), "")
		wantCode(t, r, 7)
		if r.stdout != "done\n" {
			t.Errorf("stdout %q", r.stdout)
		}
		if n := alive(t, c); n != 0 {
			t.Errorf("%d processes are left", n)
		}
	})
}

func TestDeadline(t *testing.T) {
	onEach(t, setup{}, func(t *testing.T, c *stoma.Client) {
		r := sh(escape + "echo started; trap '' TERM; sleep 1000; sleep 1000")
		r.Timeout = 500 * time.Millisecond
		res := do(t, c, r, "")
		if res.exit.Killed != stoma.KilledTimeout || res.exit.Signal == nil || *res.exit.Signal != 9 {
			t.Errorf("exit %s", show(res.exit))
		}
		if res.stdout != "started\n" {
			t.Errorf("stdout %q", res.stdout)
		}
		if n := alive(t, c); n != 0 {
			t.Errorf("%d processes are left", n)
		}
	})
}

func TestCloseEndsTheTree(t *testing.T) {
	onEach(t, setup{}, func(t *testing.T, c *stoma.Client) {
		p := begin(t, c, sh(escape+"echo ready; sleep 1000"))
		_ = p.Close()
		// The next command is a tree of its own.
		wantCode(t, do(t, c, request("true"), ""), 0)
		if err := c.Quiesce(ctx(t)); err != nil {
			t.Fatal(err)
		}
		if n := alive(t, c); n != 0 {
			t.Errorf("%d processes are left", n)
		}
	})
}

// begin starts a command and waits for its first line.
func begin(t *testing.T, c *stoma.Client, r stoma.ExecRequest) *stoma.Process {
	t.Helper()
	p, err := c.Exec(ctx(t), r)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := readLine(p.Stdout); err != nil {
		t.Fatalf("the command said nothing: %v", err)
	}
	return p
}

func readLine(r io.Reader) (string, error) {
	var line strings.Builder
	b := make([]byte, 1)
	for {
		if _, err := r.Read(b); err != nil {
			return line.String(), err
		}
		if b[0] == '\n' {
			return line.String(), nil
		}
		line.WriteByte(b[0])
	}
}

func TestTreesAreApart(t *testing.T) {
	onEach(t, setup{}, func(t *testing.T, c *stoma.Client) {
		long := begin(t, c, sh("echo ready; cat; echo end"))
		wantCode(t, do(t, c, sh("sleep 1000 & setsid sleep 1000 & exit 0"), ""), 0)
		// The first command goes on, with its own children.
		if res := finish(t, long, "still here\n"); res.stdout != "still here\nend\n" {
			t.Errorf("stdout %q, exit %s", res.stdout, show(res.exit))
		}
	})
}

func TestForkBomb(t *testing.T) {
	for _, g := range grounds {
		t.Run(g.name, func(t *testing.T) {
			s := setup{}
			if g.name == "gvisor" {
				s.args = []string{"--pids", "64"}
			}
			c := open(t, g, s)
			// Bounded by itself where the ground has no limit of processes.
			r := sh(`bomb() { [ $1 -gt 6 ] || { bomb $(($1+1)) & bomb $(($1+1)) & }; sleep 1000; }; bomb 0; wait`)
			r.Timeout = 2 * time.Second
			res := do(t, c, r, "")
			if res.exit.Killed != stoma.KilledTimeout {
				t.Errorf("exit %s, stderr %q", show(res.exit), res.stderr)
			}
			st, err := c.Stat(ctx(t))
			if err != nil {
				t.Fatal(err)
			}
			if st.Processes != 0 {
				t.Errorf("%d processes are left", st.Processes)
			}
			if g.name == "gvisor" && (st.ProcessMax != 64 || st.AtMax == 0) {
				t.Errorf("the limit refused nothing: %+v", st)
			}
			wantCode(t, do(t, c, request("true"), ""), 0)
		})
	}
}

func TestProcessLimit(t *testing.T) {
	g := grounds[2]
	c := open(t, g, setup{args: []string{"--pids", "8"}})
	res := do(t, c, sh(`i=0; while [ $i -lt 20 ]; do sleep 1000 & i=$((i+1)); done; echo all`), "")
	if strings.Contains(res.stdout, "all") || !strings.Contains(res.stderr, "fork") {
		t.Errorf("20 processes beneath a limit of 8: stdout %q, stderr %q", res.stdout, res.stderr)
	}
	// The limit is one for all commands together.
	first := begin(t, c, sh("sleep 1000 & sleep 1000 & sleep 1000 & sleep 1000 & sleep 1000 & sleep 1000 & echo ready; cat"))
	_, err := c.Exec(ctx(t), request("true"))
	var e *stoma.ExecError
	if !errors.As(err, &e) || e.Reason != stoma.NoProcess {
		t.Errorf("one command more: %v", err)
	}
	_ = first.Close()
	if err := c.Quiesce(ctx(t)); err != nil {
		t.Fatal(err)
	}
	wantCode(t, do(t, c, request("true"), ""), 0)
}

func TestQuiesce(t *testing.T) {
	onEach(t, setup{}, func(t *testing.T, c *stoma.Client) {
		a, b := begin(t, c, sh(escape+"echo ready; sleep 1000")), begin(t, c, sh("echo ready; cat"))
		if err := c.Quiesce(ctx(t)); err != nil {
			t.Fatal(err)
		}
		if n := alive(t, c); n != 0 {
			t.Errorf("%d processes are left", n)
		}
		for _, p := range []*stoma.Process{a, b} {
			exit, err := p.Wait(ctx(t))
			if err != nil || exit.Signal == nil || *exit.Signal != 9 {
				t.Errorf("exit %s, %v", show(exit), err)
			}
		}
		wantCode(t, do(t, c, request("true"), ""), 0)
	})
}

func TestShutdown(t *testing.T) {
	onEach(t, setup{}, func(t *testing.T, c *stoma.Client) {
		p := begin(t, c, sh("echo ready; sleep 1000"))
		if err := c.Shutdown(ctx(t)); err != nil {
			t.Fatal(err)
		}
		if _, err := p.Wait(ctx(t)); err != nil {
			t.Error(err)
		}
		_, err := c.Exec(ctx(t), request("true"))
		var e *stoma.ExecError
		if !errors.As(err, &e) || e.Reason != stoma.ExecRefused {
			t.Errorf("exec after shutdown: %v", err)
		}
	})
}

// TestOrphanOfAnotherTree has a command give its output to a process of another
// command, which holds it open and writes to it for ever.
func TestOrphanOfAnotherTree(t *testing.T) {
	onEach(t, setup{}, func(t *testing.T, c *stoma.Client) {
		holder := begin(t, c, sh(`mkfifo /tmp/fifo; echo ready; while :; do echo noise; done >/tmp/fifo 2>/dev/null`))
		res := do(t, c, sh(`read line </tmp/fifo; echo "$line"`), "")
		if res.stdout != "noise\n" {
			t.Errorf("stdout %q", res.stdout)
		}
		_ = holder.Close()
	})
}

// TestProcessLimitHoldsInUserNamespace has the Sprout become root of a user
// namespace, in which it may mount control group hierarchies.
func TestProcessLimitHoldsInUserNamespace(t *testing.T) {
	c := open(t, grounds[2], setup{args: []string{"--pids", "24"}})
	r := sh(`unshare -Urm sh -c '
		mkdir /tmp/v1 /tmp/v2
		mount -t cgroup -o none,name=mine none /tmp/v1 && echo mounted
		mkdir /tmp/v1/x && echo 0 >/tmp/v1/x/cgroup.procs
		mount -t cgroup -o pids none /tmp/v1
		mount -t cgroup2 none /tmp/v2
		for f in /tmp/v2/cgroup.procs /tmp/v2/sprout/pids.max /tmp/v2/cgroup.subtree_control; do echo 0 >$f && echo wrote $f; done
		i=0; while [ $i -lt 40 ]; do sleep 1000 & i=$((i+1)); done; echo all'`)
	res := do(t, c, r, "")
	if !strings.Contains(res.stderr, "fork") || strings.Contains(res.stdout, "wrote") || strings.Contains(res.stdout, "all") {
		t.Errorf("stdout %q, stderr %q", res.stdout, res.stderr)
	}
	st, err := c.Stat(ctx(t))
	if err != nil || st.AtMax == 0 || st.Processes != 0 {
		t.Errorf("stat %+v, %v", st, err)
	}
}
