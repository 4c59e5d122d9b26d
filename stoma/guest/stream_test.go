//go:build linux

package guest_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"tendril/stoma"
)

func TestStdinEnds(t *testing.T) {
	onEach(t, setup{}, func(t *testing.T, c *stoma.Client) {
		in := strings.Repeat("0123456789", 300_000)
		if res := do(t, c, request("wc", "-c"), in); res.stdout != "3000000\n" {
			t.Errorf("wc counted %q", res.stdout)
		}
		// A command that reads nothing does not hold its writer for ever.
		p, err := c.Exec(ctx(t), request("true"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.Wait(ctx(t)); err != nil {
			t.Fatal(err)
		}
		for err == nil {
			_, err = p.Stdin.Write(make([]byte, 1<<20))
		}
		_ = p.Close()
		// What was being written is out before the answer to a later question is in:
		// the carrier is not closed in the middle of a frame.
		if _, err := c.Stat(ctx(t)); err != nil {
			t.Error(err)
		}
	})
}

func TestSignal(t *testing.T) {
	onEach(t, setup{}, func(t *testing.T, c *stoma.Client) {
		p := begin(t, c, sh(`trap 'echo caught; exit 5' USR1; echo ready; while :; do sleep 0.05; done`))
		if err := p.Signal(ctx(t), int(unix.SIGUSR1)); err != nil {
			t.Fatal(err)
		}
		res := finish(t, p, "")
		wantCode(t, res, 5)
		if err := p.Signal(ctx(t), int(unix.SIGTERM)); err != nil {
			t.Errorf("a signal to a command that has ended: %v", err)
		}
		p = begin(t, c, sh("echo ready; exec sleep 1000"))
		if err := p.Signal(ctx(t), int(unix.SIGTERM)); err != nil {
			t.Fatal(err)
		}
		if res := finish(t, p, ""); res.exit.Signal == nil || *res.exit.Signal != int(unix.SIGTERM) || res.exit.Killed != "" {
			t.Errorf("exit %s", show(res.exit))
		}
	})
}

// TestSignalOvertakesDownload stops a command that never stops writing, while
// nobody reads what it writes.
func TestSignalOvertakesDownload(t *testing.T) {
	onEach(t, setup{}, func(t *testing.T, c *stoma.Client) {
		p := begin(t, c, sh("echo ready; exec cat /dev/zero"))
		if _, err := io.ReadFull(p.Stdout, make([]byte, stoma.FirstWindow)); err != nil {
			t.Fatal(err)
		}
		other := do(t, c, sh("echo other"), "")
		if other.stdout != "other\n" {
			t.Errorf("stdout %q", other.stdout)
		}
		if err := p.Signal(ctx(t), int(unix.SIGINT)); err != nil {
			t.Fatal(err)
		}
		exit, err := p.Wait(ctx(t)) // while its output is still full
		if err != nil || exit.Signal == nil || *exit.Signal != int(unix.SIGINT) {
			t.Fatalf("exit %s, %v", show(exit), err)
		}
		if _, err := io.Copy(io.Discard, p.Stdout); err != nil {
			t.Errorf("the rest of the output: %v", err)
		}
	})
}

// TestOutputSurvivesItsCommand kills a command whose output nobody has read yet.
func TestOutputSurvivesItsCommand(t *testing.T) {
	const size = 600_000
	onEach(t, setup{}, func(t *testing.T, c *stoma.Client) {
		for range 5 {
			p, err := c.Exec(ctx(t), sh(fmt.Sprintf("head -c %d /dev/zero; echo done >&2; sleep 1000", size)))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := readLine(p.Stderr); err != nil {
				t.Fatal(err)
			}
			if err := p.Signal(ctx(t), int(unix.SIGKILL)); err != nil {
				t.Fatal(err)
			}
			if _, err := p.Wait(ctx(t)); err != nil {
				t.Fatal(err)
			}
			if n, err := io.Copy(io.Discard, p.Stdout); err != nil || n != size {
				t.Errorf("%d bytes of output, %v, want %d", n, err, size)
			}
		}
	})
}

func TestDownload(t *testing.T) {
	const size = 256 << 20
	onEach(t, setup{}, func(t *testing.T, c *stoma.Client) {
		p, err := c.Exec(ctx(t), sh(fmt.Sprintf("head -c %d /dev/zero", size)))
		if err != nil {
			t.Fatal(err)
		}
		n, err := io.Copy(io.Discard, p.Stdout)
		if err != nil || n != size {
			t.Fatalf("%d bytes, %v", n, err)
		}
		exit, err := p.Wait(ctx(t))
		if err != nil || exit.Code == nil || *exit.Code != 0 {
			t.Errorf("exit %s, %v", show(exit), err)
		}
	})
}

func TestTerminal(t *testing.T) {
	onEach(t, setup{}, func(t *testing.T, c *stoma.Client) {
		r := sh(`tty >/dev/null && [ -O $(tty) ] && stty size; trap 'stty size' WINCH; echo ready >/dev/tty; 
			n=0; until read line; do n=$((n+1)); [ $n -lt 9 ] || exit 9; done # the trap interrupts a read
			echo "got $line"; cat; exit 4`)
		r.TTY = &stoma.Size{Rows: 30, Cols: 100}
		p, err := c.Exec(ctx(t), r)
		if err != nil {
			t.Fatal(err)
		}
		line := func(want string) {
			t.Helper()
			if got, err := readLine(p.Stdout); err != nil || strings.TrimSuffix(got, "\r") != want {
				t.Fatalf("line %q, %v, want %q", got, err, want)
			}
		}
		line("30 100")
		line("ready")
		if err := p.Resize(ctx(t), 40, 120); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(p.Stdin, "hello\n"); err != nil {
			t.Fatal(err)
		}
		// The trap, the echo of the line and the answer come in some order.
		var rest strings.Builder
		for !strings.Contains(rest.String(), "got hello") {
			l, err := readLine(p.Stdout)
			if err != nil {
				t.Fatalf("after %q: %v", rest.String(), err)
			}
			rest.WriteString(l + "\n")
		}
		if !strings.Contains(rest.String(), "40 120") {
			t.Errorf("no word of the new size in %q", rest.String())
		}
		_ = p.Stdin.Close()
		exit, err := p.Wait(ctx(t))
		if err != nil || exit.Code == nil || *exit.Code != 4 {
			t.Errorf("exit %s, %v", show(exit), err)
		}
		if _, err := io.Copy(io.Discard, p.Stdout); err != nil {
			t.Errorf("output: %v", err)
		}
		if b, err := io.ReadAll(p.Stderr); len(b) > 0 || err != nil {
			t.Errorf("stderr %q, %v", b, err)
		}
		if err := p.Resize(ctx(t), 1, 1); err != nil {
			t.Errorf("a resize after the end: %v", err)
		}
	})
}

func TestManyAtOnce(t *testing.T) {
	onEach(t, setup{}, func(t *testing.T, c *stoma.Client) {
		var wg sync.WaitGroup
		for i := range 16 {
			wg.Go(func() {
				p, err := c.Exec(ctx(t), sh(fmt.Sprintf("cat; echo err%d >&2; exit %d", i, i)))
				if err != nil {
					t.Error(err)
					return
				}
				var out, errs bytes.Buffer
				var copying sync.WaitGroup
				copying.Go(func() { _, _ = io.Copy(&errs, p.Stderr) })
				copying.Go(func() { _, _ = io.Copy(&out, p.Stdout) })
				_, _ = fmt.Fprintf(p.Stdin, "in%d", i)
				_ = p.Stdin.Close()
				exit, err := p.Wait(ctx(t))
				copying.Wait()
				if err != nil || exit.Code == nil || *exit.Code != i || out.String() != fmt.Sprintf("in%d", i) || errs.String() != fmt.Sprintf("err%d\n", i) {
					t.Errorf("command %d: exit %s, %v, stdout %q, stderr %q", i, show(exit), err, out.String(), errs.String())
				}
			})
		}
		wg.Wait()
	})
}

func TestConnections(t *testing.T) {
	s := setup{
		args: []string{"--listen", "upper=18080", "--listen", "deaf=18081"},
		conn: func(name string, st *stoma.Stream) {
			if name == "deaf" {
				return // closes it
			}
			line, err := bufio.NewReader(st).ReadString('\n')
			if err == nil {
				_, _ = fmt.Fprintf(st, "%s: %s", name, strings.ToUpper(line))
			}
		},
	}
	onEach(t, s, func(t *testing.T, c *stoma.Client) {
		for script, want := range map[string]string{
			`exec 3<>/dev/tcp/127.0.0.1/18080; echo hello >&3; cat <&3`:          "upper: HELLO\n",
			`exec 3<>/dev/tcp/127.0.0.1/18081; cat <&3 && echo closed`:           "closed\n",
			`(exec 3<>/dev/tcp/127.0.0.1/18082) 2>/dev/null || echo no listener`: "no listener\n",
		} {
			if res := do(t, c, request("bash", "-c", script), ""); res.stdout != want {
				t.Errorf("%s: %q, %q", script, res.stdout, res.stderr)
			}
		}
	})
}

func TestWithoutWorkspace(t *testing.T) {
	onEach(t, setup{bare: true}, func(t *testing.T, c *stoma.Client) {
		wantCode(t, do(t, c, request("true"), ""), 0)
		_, err := c.Collect(ctx(t), func(stoma.Record) error { return nil })
		if err == nil || !strings.Contains(err.Error(), "no workspace") {
			t.Errorf("collect: %v", err)
		}
		err = c.Put(ctx(t), "", strings.NewReader(""))
		if err == nil || !strings.Contains(err.Error(), "no workspace") {
			t.Errorf("put: %v", err)
		}
		wantCode(t, do(t, c, request("true"), ""), 0)
	})
}
