package acceptance_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	pseudo "math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"tendril/api/client"
	"tendril/capability"
	"tendril/fault"
	"tendril/ledger"
	"tendril/pollen"
	"tendril/run"
)

// TestCrashServe kills a tendril that serves, under load, at random moments. What it
// acknowledged is in the ledger, and the ledger holds against every checkpoint that anybody
// was given.
func TestCrashServe(t *testing.T) {
	g := newGarden(t)
	token := g.pollenFor("ci-docs", "run.list", "run.get")
	socket := filepath.Join(filepath.Dir(g.home), "t.sock")
	kills := number(t, "SOAK_KILLS", 10)
	seed := number(t, "SOAK_SEED", int(time.Now().UnixNano()&0x7fffffff))
	t.Logf("%d kills with SOAK_SEED=%d", kills, seed)
	random := pseudo.New(pseudo.NewPCG(uint64(seed), 1))
	seen := &acknowledged{rows: map[int64]string{}, pollens: map[int64]string{}}
	for i := range kills {
		server := g.serveOn(t, socket, "0600")
		stop := make(chan struct{})
		var load sync.WaitGroup
		for n := range 8 {
			load.Go(func() { seen.load(t.Context(), socket, token, n, stop) })
		}
		time.Sleep(time.Duration(random.IntN(300)) * time.Millisecond) // the moment of the kill
		server.kill()
		close(stop)
		load.Wait()
		g.mustHold(seen)
		if t.Failed() {
			t.Fatalf("kill %d of %d; SOAK_SEED=%d", i+1, kills, seed)
		}
	}
	if len(seen.rows) < kills || len(seen.pollens) == 0 || len(seen.checkpoints) == 0 {
		t.Errorf("only %d rows, %d Pollen and %d checkpoints were acknowledged in %d rounds", len(seen.rows), len(seen.pollens), len(seen.checkpoints), kills)
	}
	t.Logf("%d rows, %d Pollen and %d checkpoints were acknowledged", len(seen.rows), len(seen.pollens), len(seen.checkpoints))
}

// TestCrashServeAsOrdinaryUser does the same without root.
func TestCrashServeAsOrdinaryUser(t *testing.T) {
	asOrdinaryUser(t, "TestCrashServe", "SOAK_KILLS="+os.Getenv("SOAK_KILLS"), "SOAK_SEED="+os.Getenv("SOAK_SEED"))
}

// acknowledged is what callers were told.
type acknowledged struct {
	mu          sync.Mutex
	rows        map[int64]string // capability, by the row that an answer named
	pollens     map[int64]string // name of the Pollen that was issued, by that row
	checkpoints [][]byte
}

// load asks one thing after the other until it is stopped or nobody answers.
func (a *acknowledged) load(ctx context.Context, socket, token string, n int, stop <-chan struct{}) {
	for {
		select {
		case <-stop:
			return
		default:
		}
		r := client.Request{Socket: socket, Token: &token, Capability: "run.list", Input: capability.ListInput{}}
		switch n % 4 {
		case 1:
			r.Token, r.Capability, r.Input = nil, "ledger.checkpoint", capability.EmptyInput{}
		case 2:
			r.Capability, r.Input = "fruit.accept", capability.AcceptInput{Run: run.NewID()} // denied, and recorded
		case 3:
			r.Token, r.Capability, r.Input = nil, "pollen.issue", capability.PollenIssueInput{Name: "p-" + strings.ToLower(string(run.NewID()[2:]))}
		}
		output, row, err := client.Call(ctx, r)
		if err != nil && !fault.Is(err, fault.Denied) {
			return // it was killed meanwhile: nothing was acknowledged
		}
		a.mu.Lock()
		if row != nil {
			a.rows[*row] = r.Capability
		}
		switch output := output.(type) {
		case capability.LedgerCheckpoint:
			a.checkpoints = append(a.checkpoints, []byte(output.Checkpoint))
		case capability.IssuedPollen:
			a.pollens[*row] = output.Pollen.Name
		}
		a.mu.Unlock()
	}
}

// mustHold compares the ledger, as it is after the next start, with what was
// acknowledged.
func (g *garden) mustHold(seen *acknowledged) {
	g.t.Helper()
	export := []byte(g.succeed("ledger", "export").stdout)
	lines := bytes.Split(export, []byte("\n"))
	issued := map[int64]string{}
	for _, line := range lines[:len(lines)-1] {
		if row, err := ledger.ParseRow(line); err != nil {
			g.t.Errorf("%s: %v", line, err)
		} else if row.Change == "pollen.issued" && row.Of != nil {
			issued[*row.Of] = row.Target
		}
	}
	for seq, name := range seen.pollens {
		if issued[seq] != name {
			g.t.Errorf("row %d issued %s; the ledger has a change of %q", seq, name, issued[seq])
		}
		if _, err := g.store.Pollen(g.t.Context(), pollen.Name(name)); err != nil {
			g.t.Error(err)
		}
	}
	for seq, name := range seen.rows {
		if seq >= int64(len(lines)) {
			g.t.Errorf("row %d of %s is gone", seq, name)
			continue
		}
		row, err := ledger.ParseRow(lines[seq])
		if err != nil || row.Seq != seq || row.Capability != name {
			g.t.Errorf("row %d of %s is %s (%v)", seq, name, lines[seq], err)
		}
	}
	if len(seen.checkpoints) > 0 {
		if _, err := ledger.Verify(bytes.NewReader(export), g.store.LedgerKey(), seen.checkpoints...); err != nil {
			g.t.Error(err)
		}
		newest := slices.MaxFunc(seen.checkpoints, func(a, b []byte) int {
			return cmp.Compare(g.rowsOf(a), g.rowsOf(b))
		})
		kept := filepath.Join(g.home, "checkpoint")
		if err := os.WriteFile(kept, newest, 0o600); err != nil {
			g.t.Fatal(err)
		}
		g.succeed("ledger", "verify", "--checkpoint", kept)
	}
}

// rowsOf is how many rows a checkpoint is of.
func (g *garden) rowsOf(signed []byte) int64 {
	g.t.Helper()
	checkpoint, err := ledger.ReadCheckpoint(signed)
	if err != nil {
		g.t.Fatal(err)
	}
	return checkpoint.Size
}

// pollenFor issues a Pollen that has the classes on the garden's repository, by the
// name handbook, and returns its token.
func (g *garden) pollenFor(name string, classes ...string) string {
	g.t.Helper()
	if !strings.Contains(g.succeed("substrate", "list").stdout, "handbook") {
		g.succeed("substrate", "add", "handbook", "--path", g.repo)
	}
	args := []string{"grant", "add", "--pollen", name, "--substrate", "handbook"}
	for _, class := range classes {
		args = append(args, "--class", class)
	}
	g.succeed(args...)
	return strings.TrimSpace(g.succeed("pollen", "issue", name).stdout)
}

// tokenIn writes a token where only its owner can read it.
func (g *garden) tokenIn(name, token string) string {
	g.t.Helper()
	path := filepath.Join(g.home, name+".token")
	if err := os.WriteFile(path, []byte(token), 0o600); err != nil {
		g.t.Fatal(err)
	}
	return path
}

// What a Pollen began ends when the Pollen does, with the work so far as its Fruit.
func TestRunEndsWithItsPollen(t *testing.T) {
	const script = `echo half >half.txt; echo ready; sleep 1000`
	for _, where := range []string{"in the caller's process", "in a tendril that serves"} {
		for how, end := range map[string]func(*garden) (token string, after func()){
			"revoked": func(g *garden) (string, func()) {
				return g.pollenFor("ci-docs", "sprout.grow"), func() { g.succeed("pollen", "revoke", "ci-docs") }
			},
			"expired": func(g *garden) (string, func()) {
				g.pollenFor("another", "run.get")
				g.succeed("grant", "add", "--pollen", "ci-docs", "--substrate", "handbook", "--class", "sprout.grow")
				const life = 5 * time.Second // enough to begin
				record, token, err := pollen.Issue("ci-docs", nil, time.Now().Add(life-time.Hour), time.Hour)
				if err != nil {
					g.t.Fatal(err)
				}
				if _, err := g.store.IssuePollen(context.Background(), record); err != nil {
					g.t.Fatal(err)
				}
				return token.Reveal(), func() {}
			},
			"the grant revoked": func(g *garden) (string, func()) {
				return g.pollenFor("ci-docs", "sprout.grow"), func() { g.succeed("grant", "revoke", "--pollen", "ci-docs") }
			},
		} {
			t.Run(where+"/"+how, func(t *testing.T) {
				g := newGarden(t)
				token, after := end(g)
				flags := []string{"--token-file", g.tokenIn("ci-docs", token), "--json"}
				if where == "in a tendril that serves" {
					flags = append(flags, "--socket", g.serve(t, "0600"))
				}
				p := g.start(append(flags, "grow", "--substrate", "handbook", "--", "sh", "-c", script)...)
				r := g.awaitOutput(p, nil, "ready")
				after()
				if said := p.wait(); said.status != run.ExitStopped {
					t.Errorf("status %d: %s%s", said.status, said.stdout, said.stderr)
				}
				r = g.get(r.ID)
				if r.State != run.Stopped || r.Stop == nil || r.Stop.Cancel != "stem" || r.Commit == nil {
					t.Errorf("the run is %+v", r)
				}
			})
		}
	}
}

// What a request asks for beyond its grant refuses it; nothing is clipped to fit.
func TestNothingInARequestWidensItsGrant(t *testing.T) {
	g := newGarden(t)
	token := g.pollenFor("ci-docs", "run.get")
	g.succeed("grant", "revoke", "--pollen", "ci-docs")
	g.succeed("grant", "add", "--pollen", "ci-docs", "--substrate", "handbook", "--class", "sprout.grow", "--class", "stoma.pass",
		"--allow-provider", "runsc", "--memory", "512MiB", "--pids", "64", "--wall", "5m", "--daily-runs", "3")
	file := g.tokenIn("ci-docs", token)
	ask := func(verb string, flags ...string) (run.Run, failure) {
		t.Helper()
		args := append([]string{"--token-file", file, "--json", verb, "--substrate", "handbook"}, flags...)
		said := g.tendril(append(args, "--", "true")...)
		if said.status != 0 {
			return run.Run{}, refused(t, verb, said)
		}
		var passed capability.Pass
		into := any(&passed.Run)
		if verb == "pass" {
			into = &passed
		}
		if err := json.Unmarshal([]byte(said.stdout), into); err != nil {
			t.Errorf("%+v: %v", said, err)
		}
		return passed.Run, failure{}
	}
	for _, flags := range [][]string{
		{"--memory", "513MiB"}, {"--pids", "65"}, {"--wall", "301s"}, {"--cpus", "1"}, {"--disk", "11GiB"}, {"--output", "65MiB"},
		{"--provider", "docker"}, {"--provider", "host"},
	} {
		if _, told := ask("grow", flags...); told.Kind != fault.Denied || told.Rule == "" {
			t.Errorf("%v: %+v", flags, told)
		}
	}
	r, told := ask("grow")
	if told.Kind != "" {
		t.Fatalf("what the grant has: %+v", told)
	}
	want := map[string]string{"Memory": fmt.Sprint(512 << 20), "Pids": "64", "Wall": "5m0s"}
	for _, row := range r.Boundary {
		if asked := want[row.Field]; asked != "" && row.Applied != asked {
			t.Errorf("%s: %s was applied, the grant has %s", row.Field, row.Applied, asked)
		}
	}
	for _, verb := range []string{"grow", "pass"} {
		if _, told := ask(verb, "--memory", "256MiB", "--provider", "runsc"); told.Kind != "" {
			t.Errorf("%s within the grant: %+v", verb, told)
		}
	}
	if _, told := ask("grow"); told.Kind != fault.Denied || !strings.Contains(told.Detail, "today") {
		t.Errorf("a fourth run of the day: %+v", told)
	}
}
