//go:build linux

package source

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"tendril/credential"
)

func TestCommand(t *testing.T) {
	for name, script := range map[string]string{
		"plain": "printf %s " + honey, "a line": "echo " + honey, "beside an error": "echo h0ney >&2; echo " + honey,
		"in pieces": "printf h0ney; printf token-0f-sources",
	} {
		if got, err := read(t, credential.Source{Command: credential.Command{"sh", "-c", script}}); err != nil || got != honey {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	for name, test := range map[string]struct{ script, want string }{
		"it fails":           {"echo " + honey + "; echo " + honey + " >&2; exit 3", "it failed (exit status 3)"},
		"it is killed":       {"echo " + honey + "; kill -9 $$", "it failed (signal: killed)"},
		"it says nothing":    {"true", "fewer than 8"},
		"it says too much":   {"while :; do echo " + honey + "; done", "it wrote more than 16384 bytes"},
		"it says two things": {"echo " + honey + "; echo " + honey, "control character"},
	} {
		if got, err := read(t, credential.Source{Command: credential.Command{"sh", "-c", test.script}}); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	for _, program := range []string{"tendril-has-no-such-program", "/nowhere/at/all", "/etc"} {
		if _, err := read(t, credential.Source{Command: credential.Command{program, honey}}); err == nil || !strings.Contains(err.Error(), "cannot be started") {
			t.Errorf("%s: %v", program, err)
		}
	}
}

// TestCommandIsAlone: what it is given, and that nobody of it is left.
func TestCommandIsAlone(t *testing.T) {
	t.Setenv("TENDRIL_TEST_SECRET", honey)
	t.Setenv("HOME", "/somewhere")
	got, err := read(t, credential.Source{Command: credential.Command{"/bin/sh", "-c", `tr '\0' , </proc/self/environ`}})
	if want := "PATH=" + os.Getenv("PATH") + ",HOME=/somewhere,PWD=/,"; err != nil || !sameWords(got, want) {
		t.Errorf("got  %s\nwant %s\n%v", got, want, err)
	}
	got, err = read(t, credential.Source{Command: credential.Command{"/bin/sh", "-c", `readlink /proc/self/fd/0 /proc/self/cwd | tr '\n' ,; cut -d' ' -f5 /proc/$$/stat | tr '\n' ,; echo $$`}})
	words := strings.Split(got, ",")
	if err != nil || len(words) != 4 || words[0] != "/dev/null" || words[1] != "/" || words[2] != words[3] {
		t.Errorf("%q, %v", words, err)
	}
	got, err = read(t, credential.Source{Command: credential.Command{"/bin/sh", "-c", `sleep 1000 & printf "child-%08d" $!`}})
	if err != nil {
		t.Fatal(err)
	}
	gone(t, strings.TrimLeft(strings.TrimPrefix(got, "child-"), "0"))
}

// sameWords: the shell may set PWD, _ and its like for what it starts; nothing else.
func sameWords(got, want string) bool {
	for word := range strings.SplitSeq(got, ",") {
		if !strings.Contains(want, word+",") && !strings.HasPrefix(word, "_=") && !strings.HasPrefix(word, "SHLVL=") && !strings.HasPrefix(word, "OLDPWD=") {
			return false
		}
	}
	return strings.Contains(got, "HOME=")
}

// gone waits until a killed process is at most a zombie that its new parent has not taken yet.
func gone(t *testing.T, pid string) {
	t.Helper()
	number, err := strconv.Atoi(pid)
	if err != nil {
		t.Fatal(err)
	}
	handle, err := unix.PidfdOpen(number, 0)
	if errors.Is(err, unix.ESRCH) {
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(handle)
	if n, err := unix.Poll([]unix.PollFd{{Fd: int32(handle), Events: unix.POLLIN}}, 10_000); n != 1 {
		t.Errorf("process %s lives on: %v", pid, err)
	}
}

// TestCommandThatDoesNotEnd: whoever no longer waits ends it, and its children.
func TestCommandThatDoesNotEnd(t *testing.T) {
	pids := filepath.Join(private(t), "pids")
	if err := unix.Mkfifo(pids, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	r := New()
	defer r.Close()
	c := credential.Named{Name: "c", Credential: credential.Credential{Source: credential.Source{
		Command: credential.Command{"sh", "-c", "sleep 1000 & echo $$ $! >" + pids + "; echo " + honey + "; wait"},
	}}}
	ended := make(chan error)
	go func() {
		_, err := r.Read(ctx, c)
		ended <- err
	}()
	told, err := os.ReadFile(pids)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	err = <-ended
	shown(t, err)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	for pid := range strings.FieldsSeq(string(told)) {
		gone(t, pid)
	}
}

// TestCommandRunsOnce for all who ask within its time, one after the other.
func TestCommandRunsOnce(t *testing.T) {
	runs := filepath.Join(private(t), "runs")
	c := credential.Named{Name: "c", Credential: credential.Credential{Source: credential.Source{
		Command: credential.Command{"sh", "-c", "echo x >>" + runs + "; printf " + honey + "-%s $(wc -l <" + runs + ")"},
	}}}
	r := New()
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			secret, err := r.Read(t.Context(), c)
			if err != nil || string(secret.Bytes()) != honey+"-1" {
				t.Errorf("%q, %v", secret.Bytes(), err)
			}
			secret.Close() // the next one has a copy of its own
		})
	}
	all.Wait()
	r.Close()
	if _, ok := r.command(c.Source.Command).known(); ok {
		t.Error("the secret is kept after Close")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r.command(c.Source.Command).busy <- struct{}{}
	if _, err := r.Read(ctx, c); !errors.Is(err, context.Canceled) {
		t.Errorf("who waits for another does not give up: %v", err)
	}
}

// TestCommandIsForgotten after its time, and overwritten.
func TestCommandIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &command{busy: make(chan struct{}, 1)}
		secret, err := credential.NewSecret([]byte(honey))
		if err != nil {
			t.Fatal(err)
		}
		held := secret.Bytes()
		c.keep(secret)
		time.Sleep(commandKept - time.Millisecond)
		if own, ok := c.known(); !ok || string(own.Bytes()) != honey {
			t.Error("it is forgotten early")
		}
		time.Sleep(2 * time.Millisecond)
		if _, ok := c.known(); ok || strings.Trim(string(held), "\x00") != "" {
			t.Errorf("it is kept: %q", held)
		}
	})
}
