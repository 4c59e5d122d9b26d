//go:build linux

package acceptance_test

import (
	"bytes"
	byteorder "encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"tendril/run"
)

// controlHalves are a string that a script inside puts together, so that whole it is in no
// memory but that of the inside.
var controlHalves = [2]string{"ctl", "7be2c1d9a4f03356"}

// A credential is attached outside: the server gets it, and nothing inside, in what is kept
// or in any process but the Stem has it.
func TestCredentialsAreAttachedOutside(t *testing.T) {
	needs(t, "curl")
	g := newGarden(t)
	o := g.goOutside(t)
	arrived, release := make(chan struct{}, 1), make(chan struct{})
	o.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/ok/held" {
			arrived <- struct{}{}
			select {
			case <-release:
			case <-r.Context().Done():
			}
		}
		o.answer(w, r)
	})
	g.permit(o, "    credentials: [model-api]\n")
	secret := filepath.Join(g.home, "api.key")
	if err := os.WriteFile(secret, []byte(honeytoken+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	g.succeed("credential", "add", "model-api", "--file", secret, "--host", o.host, "--port", o.port, "--path", "/ok/*",
		"--header", "Authorization", "--template", "Bearer {secret}")
	p := g.start("--json", "grow", "--substrate", "handbook", "--", "sh", "-c", fmt.Sprintf(`
control=$(printf '%[2]s-%%s' %[3]s)
curl -sS -m 20 -H 'Authorization: Bearer placeholder' %[1]s/ok/a >a.txt
curl -sS -m 20 %[1]s/ok/echo >echo.txt 2>error.txt
curl -sS -m 120 %[1]s/ok/held >held.txt
(%[4]s) >/tmp/found 2>/dev/null; cp /tmp/found found.txt`, o.url(), controlHalves[0], controlHalves[1], lookForToken))
	select {
	case <-arrived:
	case <-p.ended:
		t.Fatalf("the run has ended: %+v", p.wait())
	case <-time.After(patience):
		t.Fatal("the server is not asked")
	}
	mustHoldNoToken(t, p.pid())
	close(release)
	said := p.wait()
	var r run.Run
	if err := json.Unmarshal([]byte(said.stdout), &r); err != nil || r.Branch == nil {
		t.Fatalf("%v: %+v", err, said)
	}
	var want []string
	for _, path := range []string{"/ok/a", "/ok/echo", "/ok/held"} {
		want = append(want, "GET "+path+" Bearer "+honeytoken)
	}
	if seen := o.requests(); strings.Join(seen, "|") != strings.Join(want, "|") {
		t.Errorf("the server saw %q", seen)
	}
	if fruit := g.git("show", "--format=", *r.Branch); strings.Contains(fruit, honeytoken) {
		t.Errorf("the secret came inside:\n%s", fruit)
	}
	if found := g.written(r, "found.txt"); found != "/tmp/decoy" {
		t.Errorf("inside the secret is in %q, want the decoy alone", found)
	}
	for name, path := range map[string]string{"a.txt": "/ok/a", "held.txt": "/ok/held"} {
		if got := g.written(r, name); got != "hello from "+path {
			t.Errorf("%s is %q", name, got)
		}
	}
	// Nothing that is kept has it, but the file that it comes from.
	if found, err := g.tryShell(`grep -rl "$1" "$2" "$3"`, honeytoken, g.home, g.state); err != nil || strings.TrimSpace(found) != secret {
		t.Errorf("the secret is in %s, %v", found, err)
	}
	for _, verb := range [][]string{{"ledger", "export"}, {"run", "watch", string(r.ID)}, {"credential", "list"}} {
		if said := g.tendril(verb...); strings.Contains(said.stdout+said.stderr, honeytoken) {
			t.Errorf("%v shows the secret", verb)
		}
	}
	if !strings.Contains(g.tendril("run", "watch", string(r.ID)).stderr, "held the secret of the credential model-api") {
		t.Error("that an answer held the secret is said nowhere")
	}
}

func TestCredentialsAsOrdinaryUser(t *testing.T) {
	asOrdinaryUser(t, "TestCredentialsAreAttachedOutside")
}

// mustHoldNoToken looks into the processes of a run that is held open. The Stem itself may
// have the token in its memory. An ordinary user may look into some of them only.
func mustHoldNoToken(t *testing.T, stem int) {
	t.Helper()
	control := strings.Join(controlHalves[:], "-")
	controls := 0
	below := descendants(t, stem)
	for _, pid := range append(pids(below), stem) {
		for _, file := range []string{"cmdline", "environ"} {
			content, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, file))
			if err != nil && !unseen(err) {
				t.Error(err)
			}
			if bytes.Contains(content, []byte(honeytoken)) {
				t.Errorf("the secret is in the %s of process %d", file, pid)
			}
		}
	}
	for _, p := range below {
		held, pages, err := inMemory(p.pid, control, honeytoken)
		t.Logf("process %d (%.40s): %d pages, %v, %v", p.pid, p.command, pages, held, err)
		if err != nil && !unseen(err) {
			t.Error(err)
		}
		if held[control] {
			controls++
		}
		if held[honeytoken] {
			t.Errorf("the secret is in the memory of process %d (%s)", p.pid, p.command)
		}
	}
	if controls == 0 && os.Getuid() == 0 {
		t.Error("not even what is known to be inside was found in the memory of any process")
	}
}

func pids(of []hostProcess) (list []int) {
	for _, p := range of {
		list = append(list, p.pid)
	}
	return list
}

// unseen is that a process has ended meanwhile, or that an ordinary user may not look.
func unseen(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) || errors.Is(err, io.EOF) ||
		os.Getuid() != 0 && errors.Is(err, fs.ErrPermission)
}

// mostPages bounds how much of one process is looked at: 4 GiB, where a page has 4 KiB.
const mostPages = 1 << 20

// inMemory says which of the words are in the memory that a process can read, and how many
// pages were looked at. Pages that are in no memory (proc_pid_pagemap(5)) are left alone:
// to read them would make the kernel provide them.
func inMemory(pid int, words ...string) (held map[string]bool, pages int, err error) {
	proc := "/proc/" + strconv.Itoa(pid)
	maps, err := os.ReadFile(proc + "/maps")
	if err != nil {
		return nil, 0, err
	}
	memory, err := os.Open(proc + "/mem")
	if err != nil {
		return nil, 0, err
	}
	defer memory.Close()
	pagemap, err := os.Open(proc + "/pagemap")
	if err != nil {
		return nil, 0, err
	}
	defer pagemap.Close()
	held = map[string]bool{}
	size := int64(os.Getpagesize())
	const overlap = 64 // more than a word has, which may lie across pages
	entries, window := make([]byte, 8<<10), make([]byte, overlap+size)
	for line := range strings.Lines(string(maps)) {
		var from, to int64
		var access string
		if n, err := fmt.Sscanf(line, "%x-%x %s", &from, &to, &access); n != 3 || access[0] != 'r' || strings.Contains(line, "[vvar") {
			if n < 2 && !strings.Contains(line, "[vsyscall]") { // which is above what fits
				return held, pages, fmt.Errorf("%s/maps has %q: %v", proc, line, err)
			}
			continue
		}
		for at := from; at < to; {
			entries := entries[:min(int64(len(entries)), (to-at)/size*8)]
			if _, err := pagemap.ReadAt(entries, at/size*8); err != nil {
				return held, pages, fmt.Errorf("%s/pagemap at %#x: %w", proc, at, err)
			}
			for ; len(entries) > 0; entries, at = entries[8:], at+size {
				const present, swapped = 1 << 63, 1 << 62
				copy(window, window[size:]) // the end of the page before
				if byteorder.NativeEndian.Uint64(entries)&(present|swapped) == 0 {
					continue
				}
				if pages++; pages > mostPages {
					return held, pages, fmt.Errorf("process %d has more memory than is looked at", pid)
				}
				if _, err := memory.ReadAt(window[overlap:], at); err != nil {
					return held, pages, fmt.Errorf("%s/mem at %#x, %s: %w", proc, at, line, err)
				}
				for _, word := range words {
					held[word] = held[word] || bytes.Contains(window, []byte(word))
				}
			}
		}
	}
	return held, pages, nil
}
