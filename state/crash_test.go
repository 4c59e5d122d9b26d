//go:build linux

package state_test

import (
	"bufio"
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"tendril/run"
	"tendril/state"
)

// TestMain is also the main of the processes that the tests below begin.
func TestMain(m *testing.M) {
	if path := os.Getenv("WRITE_TO"); path != "" {
		rounds, _ := strconv.Atoi(os.Getenv("ROUNDS"))
		if err := write(path, rounds); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if path := os.Getenv("RECORD_TO"); path != "" {
		if err := record(path); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if path := os.Getenv("SPEND_TO"); path != "" {
		if err := spendFor(path, run.ID(os.Getenv("SPEND_RUN"))); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// write takes runs through their lives, for so many rounds, and says each time
// what was acknowledged: "event RUN ID" or "state RUN STATE".
func write(path string, rounds int) error {
	ctx := context.Background()
	s, err := state.Open(ctx, path)
	if err != nil {
		return err
	}
	defer s.Close()
	for range rounds {
		r := newRun()
		if err := s.CreateRun(ctx, r); err != nil {
			return err
		}
		fmt.Println("state", r.ID, r.State)
		for _, next := range []run.State{run.Preparing, run.Running, run.Collecting, run.Fruited} {
			batch := make([]run.Event, 1+rand.N(8))
			for i := range batch {
				batch[i].Data = run.OutputChunk{FD: 1, Bytes: make([]byte, rand.N(state.LargestChunk))}
			}
			stored, err := s.AppendEvents(ctx, r.ID, batch...)
			if err != nil {
				return err
			}
			fmt.Println("event", r.ID, stored[len(stored)-1].ID)
			if _, _, err := s.UpdateRun(ctx, r.ID, func(r *run.Run) error { r.State = next; return nil }); err != nil {
				return err
			}
			fmt.Println("state", r.ID, next)
		}
	}
	return nil
}

func writer(path string, rounds int) *exec.Cmd {
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), "WRITE_TO="+path, "ROUNDS="+strconv.Itoa(rounds))
	child.Stderr = os.Stderr
	return child
}

// check compares the store with what was acknowledged.
func check(t *testing.T, path string, acknowledged []string) {
	t.Helper()
	s := open(t, path)
	defer s.Close()
	order := map[run.State]int{}
	for i, state := range run.States() {
		order[state] = i
	}
	for _, line := range acknowledged {
		what, id, value := fields(line)
		r, err := s.Get(t.Context(), id)
		if err != nil {
			t.Fatalf("%s was acknowledged: %v", line, err)
		}
		all := events(t, s, id)
		switch what {
		case "state":
			if order[r.State] < order[run.State(value)] {
				t.Errorf("%s was acknowledged, and it is %s", line, r.State)
			}
		case "event":
			if n, _ := strconv.Atoi(value); len(all) < n {
				t.Errorf("%s was acknowledged, and there are %d", line, len(all))
			}
		}
		var last run.State
		for i, e := range all {
			if e.ID != int64(i)+1 {
				t.Fatalf("event %d of %s has the id %d", i+1, id, e.ID)
			}
			if change, ok := e.Data.(run.StateChange); ok {
				last = change.State
			}
		}
		if last != r.State {
			t.Errorf("the record of %s says %s, its events say %s", id, r.State, last)
		}
	}
	s.Close()
	db, err := sql.Open("sqlite", "file:"+path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var verdict string
	if err := db.QueryRow(`PRAGMA integrity_check`).Scan(&verdict); err != nil || verdict != "ok" {
		t.Errorf("integrity: %s, %v", verdict, err)
	}
}

func fields(line string) (what string, id run.ID, value string) {
	words := strings.Fields(line)
	return words[0], run.ID(words[1]), words[2]
}

// TestNothingAcknowledgedIsLost kills a process that writes, at a random point,
// again and again on one database. CRASHES says how often and CRASH_SEED where to
// begin.
func TestNothingAcknowledgedIsLost(t *testing.T) {
	crashes, seed := 10, rand.Uint64()
	if n, err := strconv.Atoi(os.Getenv("CRASHES")); err == nil {
		crashes = n
	}
	if n, err := strconv.ParseUint(os.Getenv("CRASH_SEED"), 10, 64); err == nil {
		seed = n
	}
	t.Logf("CRASHES=%d CRASH_SEED=%d", crashes, seed)
	random := rand.New(rand.NewPCG(seed, 0))
	path := filepath.Join(t.TempDir(), "state.db")
	for range crashes {
		child := writer(path, 1_000_000)
		out, err := child.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		// The child dies while it does what comes after the line at which it is
		// killed; what it had said by then still comes out of the pipe.
		var acknowledged []string
		fatal := random.IntN(60)
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			acknowledged = append(acknowledged, lines.Text())
			if len(acknowledged) == fatal+1 {
				child.Process.Kill()
			}
		}
		child.Wait()
		if len(acknowledged) <= fatal {
			t.Fatalf("the writer ended by itself after %d lines", len(acknowledged))
		}
		check(t, path, acknowledged)
	}
}

// TestManyProcessesAtOnce lets processes make one database and write to it
// together.
func TestManyProcessesAtOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", "state.db")
	const processes, rounds = 6, 5
	type end struct {
		out []byte
		err error
	}
	ends := make(chan end)
	for range processes {
		go func() {
			out, err := writer(path, rounds).Output()
			ends <- end{out, err}
		}()
	}
	var acknowledged []string
	for range processes {
		e := <-ends
		if e.err != nil {
			t.Error(e.err)
		}
		acknowledged = append(acknowledged, strings.Split(strings.TrimSpace(string(e.out)), "\n")...)
	}
	if want := processes * rounds * 9; len(acknowledged) != want {
		t.Errorf("%d lines were acknowledged, want %d", len(acknowledged), want)
	}
	check(t, path, acknowledged)
	runs, err := open(t, path).List(t.Context(), state.Filter{State: run.Fruited}, 1000, "")
	if err != nil || len(runs) != processes*rounds {
		t.Errorf("%d runs are fruited, want %d (%v)", len(runs), processes*rounds, err)
	}
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), "state.db") && e.Name() != "ledger.key" {
			t.Errorf("%s was left behind", e.Name())
		}
	}
}
