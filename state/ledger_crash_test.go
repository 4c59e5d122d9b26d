//go:build linux

package state_test

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"tendril/ledger"
	"tendril/run"
	"tendril/state"
)

// record writes to the ledger, alone and together with runs, until it is killed, and
// says what was acknowledged: "row SEQ DIGEST" and "checkpoint BASE64".
func record(path string) error {
	ctx := context.Background()
	s, err := state.Open(ctx, path)
	if err != nil {
		return err
	}
	defer s.Close()
	var printing sync.Mutex
	failed := make(chan error)
	for range 4 {
		go func() {
			for {
				lines, err := recordSome(ctx, s)
				if err != nil {
					failed <- err
					return
				}
				signed, err := s.Checkpoint(ctx)
				if err != nil {
					failed <- err
					return
				}
				printing.Lock()
				for seq, line := range lines {
					sum := sha256.Sum256(line)
					fmt.Println("row", seq, hex.EncodeToString(sum[:]))
				}
				fmt.Println("checkpoint", base64.StdEncoding.EncodeToString([]byte(signed)))
				printing.Unlock()
			}
		}()
	}
	return <-failed
}

// recordSome returns the rows that it knows to be on disk.
func recordSome(ctx context.Context, s *state.Store) (map[int64][]byte, error) {
	r := newRun()
	if err := s.CreateRun(ctx, r, created(r)); err != nil {
		return nil, err
	}
	rows, err := s.Record(ctx, permit("sprout.grow"), permit("run.get"))
	if err != nil {
		return nil, err
	}
	lines := map[int64][]byte{}
	for _, row := range rows {
		lines[row.Seq] = row.Line()
	}
	_, _, err = s.UpdateRun(ctx, r.ID, func(r *run.Run) error { r.State = run.Refused; return nil }, func(r run.Run) ledger.Entry {
		return ledger.Entry{Kind: ledger.Change, Run: string(r.ID), Change: "run.ended", State: string(r.State), Of: &rows[0].Seq}
	})
	return lines, err
}

func created(r run.Run) ledger.Entry {
	return ledger.Entry{Kind: ledger.Change, Subject: r.Substrate.String(), Run: string(r.ID), Change: "run.created", State: string(r.State)}
}

// TestTheLedgerSurvivesACrash kills one of two processes that write to one ledger, again
// and again: every row that was acknowledged is there, and the ledger holds against
// every checkpoint that anybody has seen. CRASHES and CRASH_SEED are as above.
func TestTheLedgerSurvivesACrash(t *testing.T) {
	crashes, seed := 5, rand.Uint64()
	if n, err := strconv.Atoi(os.Getenv("CRASHES")); err == nil {
		crashes = n
	}
	if n, err := strconv.ParseUint(os.Getenv("CRASH_SEED"), 10, 64); err == nil {
		seed = n
	}
	t.Logf("CRASHES=%d CRASH_SEED=%d", crashes, seed)
	random := rand.New(rand.NewPCG(seed, 0))
	path := filepath.Join(t.TempDir(), "state.db")
	var acknowledged []string
	for range crashes {
		one, other := killedAfter(t, path, random.IntN(60)), killedAfter(t, path, 10+random.IntN(60))
		acknowledged = append(append(acknowledged, <-one...), <-other...)
		checkLedger(t, path, acknowledged)
	}
}

// killedAfter runs a process that records, kills it after so many lines, and yields the
// lines that it said.
func killedAfter(t *testing.T, path string, fatal int) <-chan []string {
	t.Helper()
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), "RECORD_TO="+path)
	child.Stderr = os.Stderr
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	said := make(chan []string, 1)
	go func() {
		var acknowledged []string
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			acknowledged = append(acknowledged, lines.Text())
			if len(acknowledged) == fatal+1 {
				child.Process.Kill()
			}
		}
		child.Wait()
		if len(acknowledged) <= fatal {
			t.Errorf("the process ended by itself after %d lines", len(acknowledged))
		}
		said <- acknowledged
	}()
	return said
}

func checkLedger(t *testing.T, path string, acknowledged []string) {
	t.Helper()
	s := open(t, path)
	defer s.Close()
	lines := strings.Split(string(export(t, s)), "\n")
	var kept [][]byte
	for _, said := range acknowledged {
		words := strings.Fields(said)
		if words[0] == "checkpoint" && len(words) == 2 {
			signed, err := base64.StdEncoding.DecodeString(words[1])
			if err != nil {
				continue // the process died while it said so
			}
			kept = append(kept, signed)
		}
		if words[0] == "row" && len(words) == 3 && len(words[2]) == 2*sha256.Size {
			seq, err := strconv.Atoi(words[1])
			if err != nil || seq >= len(lines)-1 {
				t.Fatalf("%s was acknowledged, and there are %d rows", said, len(lines)-1)
			}
			if sum := sha256.Sum256([]byte(lines[seq])); hex.EncodeToString(sum[:]) != words[2] {
				t.Errorf("%s was acknowledged, and it is %s", said, lines[seq])
			}
		}
	}
	verify(t, s, kept...)
	// A run is there exactly if the row that says so is.
	runs, err := s.List(t.Context(), state.Filter{}, state.MostRuns, "")
	if err != nil {
		t.Fatal(err)
	}
	inLedger := map[string]string{}
	for _, line := range lines[:len(lines)-1] {
		row, err := ledger.ParseRow([]byte(line))
		if err != nil {
			t.Fatal(err)
		}
		if row.Kind == ledger.Change {
			inLedger[row.Run] = row.State
		}
	}
	if len(runs) < state.MostRuns && len(runs) != len(inLedger) {
		t.Errorf("%d runs, and %d in the ledger", len(runs), len(inLedger))
	}
	for _, r := range runs {
		if inLedger[string(r.ID)] != string(r.State) {
			t.Errorf("run %s is %s, and the ledger says %q", r.ID, r.State, inLedger[string(r.ID)])
		}
	}
}
