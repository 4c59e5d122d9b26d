//go:build linux

package terrariumtest

import (
	"bytes"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"tendril/stoma"
)

// expect reads exactly that from a command's output.
func expect(t *testing.T, p *stoma.Process, want string) {
	t.Helper()
	got := make([]byte, len(want))
	if _, err := io.ReadFull(p.Stdout, got); err != nil || string(got) != want {
		_ = p.Close() // so that what it said aside ends
		aside, _ := io.ReadAll(io.LimitReader(p.Stderr, 1<<10))
		t.Fatalf("a command said %q (%v), want %q, and aside %q", bytes.TrimRight(got, "\x00"), err, want, aside)
	}
}

const mebibyte = 1 << 20

// testOutput: a gibibyte (a quarter through a slow wall) arrives byte for byte, takes no memory here to speak of,
// and holds up neither a stat nor a signal. Whoever waits behind the stream would
// wait forever, because nobody reads on until they are through.
func testOutput(t *testing.T, g *ground) {
	b := g.open(t, nil)
	size := int64(1024 * mebibyte)
	if g.options.Slow > 1 {
		size /= 4
	}
	var before, now runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	flood := b.start(t, stoma.ExecRequest{Argv: []string{"dd", "if=/dev/zero", "bs=1M", fmt.Sprint("count=", size/mebibyte), "status=none"}})
	if _, err := io.CopyN(io.Discard, flood.Stdout, 16*mebibyte); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Stoma().Stat(b.within(t)); err != nil {
		t.Fatalf("a stat beside a stream that nobody reads: %v", err)
	}
	other := b.start(t, stoma.ExecRequest{Argv: []string{"yes"}})
	if err := other.Signal(b.within(t), int(unix.SIGINT)); err != nil {
		t.Fatalf("a signal beside a stream that nobody reads: %v", err)
	}
	if exit, err := other.Wait(b.within(t)); err != nil || exit.Signal == nil || *exit.Signal != int(unix.SIGINT) {
		t.Fatalf("a command with unread output that was sent SIGINT ended with %+v, %v", exit, err)
	}
	rest, err := io.Copy(io.Discard, flood.Stdout)
	if err != nil || rest != size-16*mebibyte {
		t.Errorf("%d more bytes arrived (%v)", rest, err)
	}
	runtime.GC()
	runtime.ReadMemStats(&now)
	if grown := int64(now.HeapSys) - int64(before.HeapSys); grown > 64*mebibyte {
		t.Errorf("the heap has grown by %d bytes", grown)
	}
	if exit, err := flood.Wait(b.within(t)); err != nil || exit.Code == nil || *exit.Code != 0 {
		t.Errorf("the command ended with %+v, %v", exit, err)
	}
}

// orphans starts a grandchild in a session of its own whose parent is gone, and says
// its name. It holds none of the command's streams.
const orphans = `(setsid sh -c 'exec sleep 86400' </dev/null >/dev/null 2>&1 &) ; (setsid setsid sleep 86400 &) ; echo ready; `

// testTrees: when a command ends, however it does, nothing of it runs on.
func testTrees(t *testing.T, g *ground) {
	b := g.open(t, nil)
	ends := map[string]func(t *testing.T) (stoma.Exit, error){
		"exit": func(t *testing.T) (stoma.Exit, error) {
			p := b.start(t, stoma.ExecRequest{Argv: []string{"sh", "-c", orphans}})
			e := b.finish(t, p, "")
			if e.stdout != "ready\n" {
				t.Errorf("the command %s", e)
			}
			return e.exit, nil
		},
		stoma.KilledTimeout: func(t *testing.T) (stoma.Exit, error) {
			p := b.start(t, stoma.ExecRequest{Argv: []string{"sh", "-c", orphans + `exec sleep 86400`}, Timeout: g.slowly(time.Second)})
			expect(t, p, "ready\n")
			return p.Wait(b.within(t))
		},
		stoma.KilledQuiesce: func(t *testing.T) (stoma.Exit, error) {
			p := b.start(t, stoma.ExecRequest{Argv: []string{"sh", "-c", orphans + `exec sleep 86400`}})
			expect(t, p, "ready\n")
			if err := b.Stoma().Quiesce(b.within(t)); err != nil {
				return stoma.Exit{}, err
			}
			return p.Wait(b.within(t))
		},
		stoma.KilledCanceled: func(t *testing.T) (stoma.Exit, error) {
			p := b.start(t, stoma.ExecRequest{Argv: []string{"sh", "-c", orphans + `exec sleep 86400`}})
			expect(t, p, "ready\n")
			if err := p.Close(); err != nil {
				return stoma.Exit{}, err
			}
			// Nobody is told of the end of a command that nobody follows any more.
			b.eventually(t, "the command's processes end", func() bool {
				stat, err := b.Stoma().Stat(b.within(t))
				return err == nil && stat.Processes == 0
			})
			return stoma.Exit{Killed: stoma.KilledCanceled}, nil
		},
	}
	for how, end := range ends {
		t.Run(how, func(t *testing.T) {
			exit, err := end(t)
			if err != nil {
				t.Fatal(err)
			}
			if want := strings.TrimPrefix(how, "exit"); exit.Killed != want {
				t.Errorf("the command was killed by %q, want %q", exit.Killed, want)
			}
			stat, err := b.Stoma().Stat(b.within(t))
			if err != nil || stat.Processes != 0 {
				t.Errorf("%d processes are left (%v)", stat.Processes, err)
			}
			// Not only by the guest's own count.
			if left := b.sh(t, `grep -la '[8]6400' /proc/[0-9]*/cmdline || true`); left != "" {
				t.Errorf("left: %s", left)
			}
		})
	}
}
