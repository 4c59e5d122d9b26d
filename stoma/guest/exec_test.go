//go:build linux

package guest_test

import (
	"bytes"
	"io"
	"sync"
	"testing"

	"tendril/stoma"
)

// result is a command that has ended.
type result struct {
	exit           stoma.Exit
	stdout, stderr string
}

var env = []string{"PATH=/usr/bin:/bin", "LC_ALL=C"}

func request(argv ...string) stoma.ExecRequest {
	return stoma.ExecRequest{Argv: argv, Env: env, Dir: "/tmp"}
}

func sh(script string) stoma.ExecRequest { return request("sh", "-c", script) }

// do runs a command to its end.
func do(t *testing.T, c *stoma.Client, r stoma.ExecRequest, stdin string) result {
	t.Helper()
	p, err := c.Exec(ctx(t), r)
	if err != nil {
		t.Fatalf("exec %q: %v", r.Argv, err)
	}
	return finish(t, p, stdin)
}

func finish(t *testing.T, p *stoma.Process, stdin string) result {
	t.Helper()
	var res result
	var wg sync.WaitGroup
	var out, errs bytes.Buffer
	wg.Go(func() { _, _ = io.Copy(&out, p.Stdout) })
	wg.Go(func() { _, _ = io.Copy(&errs, p.Stderr) })
	wg.Go(func() {
		_, _ = io.WriteString(p.Stdin, stdin)
		_ = p.Stdin.Close()
	})
	exit, err := p.Wait(ctx(t))
	if err != nil {
		t.Fatalf("wait: %v", err)
	}
	wg.Wait()
	res.exit, res.stdout, res.stderr = exit, out.String(), errs.String()
	return res
}

func wantCode(t *testing.T, r result, code int) {
	t.Helper()
	if r.exit.Code == nil || *r.exit.Code != code {
		t.Fatalf("exit %s, want code %d; stdout %q, stderr %q", show(r.exit), code, r.stdout, r.stderr)
	}
}

func TestExec(t *testing.T) {
	onEach(t, setup{}, func(t *testing.T, c *stoma.Client) {
		r := do(t, c, sh("cat; echo err >&2; exit 3"), "hello")
		wantCode(t, r, 3)
		if r.stdout != "hello" || r.stderr != "err\n" {
			t.Fatalf("stdout %q, stderr %q", r.stdout, r.stderr)
		}
		const n = 20
		for range n {
			wantCode(t, do(t, c, request("true"), ""), 0)
		}
	})
}

// TestStreamsAreReturned runs more commands than there are streams, without
// reading what they write.
func TestStreamsAreReturned(t *testing.T) {
	c := open(t, grounds[1], setup{})
	for range stoma.MaxStreams / 2 {
		p, err := c.Exec(ctx(t), sh("echo out; echo err >&2"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.Wait(ctx(t)); err != nil {
			t.Fatal(err)
		}
		_ = p.Close()
	}
}
