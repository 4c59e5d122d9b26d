//go:build linux

package state_test

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"tendril/budget"
	"tendril/run"
	"tendril/state"
)

// spendFor reserves and settles on behalf of one run until it is killed, and says each
// time what was acknowledged: "reserved TOKENS" and "settled RESERVED CAME".
func spendFor(path string, id run.ID) error {
	ctx := context.Background()
	s, err := state.Open(ctx, path)
	if err != nil {
		return err
	}
	defer s.Close()
	for {
		bound := 1 + rand.Int64N(1000)
		reserved, err := s.Reserve(ctx, state.Reservation{Run: id, Pollen: "botanist", At: time.Now(), Bound: budget.Amount{Tokens: bound, Spend: bound}}, permit("model"))
		if err != nil {
			return err
		}
		fmt.Println("reserved", bound, 0)
		came := rand.Int64N(bound)
		if err := s.Settle(ctx, reserved, budget.Amount{Tokens: came, Spend: came}); err != nil {
			return err
		}
		fmt.Println("settled", bound, came)
	}
}

// TestWhatACrashInterruptsStaysSpent kills a process that spends, again and again:
// everything that was acknowledged is counted, and what was reserved and not settled
// stays so.
func TestWhatACrashInterruptsStaysSpent(t *testing.T) {
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
		s := open(t, path)
		r := create(t, s)
		s.Close()
		var reserved, settled int64 // as acknowledged
		fatal := random.IntN(60)
		child := exec.Command(os.Args[0])
		child.Env = append(os.Environ(), "SPEND_TO="+path, "SPEND_RUN="+string(r.ID))
		child.Stderr = os.Stderr
		out, err := child.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		lines, last := 0, ""
		for said := bufio.NewScanner(out); said.Scan(); {
			var bound, came int64
			if n, _ := fmt.Sscan(said.Text(), &last, &bound, &came); n != 3 {
				break // the process died while it said so
			}
			if last == "reserved" {
				reserved += bound
			} else {
				reserved, settled = reserved-bound, settled+came
			}
			if lines++; lines == fatal+1 {
				child.Process.Kill()
			}
		}
		child.Wait()
		if lines <= fatal {
			t.Fatalf("the process ended by itself after %d lines", lines)
		}
		s = open(t, path)
		got := spent(t, s, r.ID)
		// One more step may have been stored, and not been said any more.
		if last == "reserved" {
			asSaid := got.Reserved.Tokens == reserved && got.Settled.Tokens == settled
			oneMore := got.Reserved.Tokens == 0 && got.Settled.Tokens >= settled && got.Settled.Tokens < settled+reserved
			if !asSaid && !oneMore {
				t.Errorf("%+v; %d reserved and %d settled were acknowledged", got, reserved, settled)
			}
		} else if got.Settled.Tokens != settled || got.Reserved.Tokens > 1000 {
			t.Errorf("%+v; %d settled were acknowledged", got, settled)
		}
		if got.Reserved.Tokens != got.Reserved.Spend || got.Settled.Tokens != got.Settled.Spend {
			t.Errorf("half of a change was stored: %+v", got)
		}
		s.Close()
	}
}
