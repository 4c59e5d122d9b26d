package acceptance_test

import (
	"crypto/rand"
	"encoding/json"
	pseudo "math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"tendril/run"
)

// endless works, says so, and ends only when something ends it.
const endless = `echo work >work.txt; echo ready; sleep 1000`

// plenty leaves so much work that handing it over takes a while.
const plenty = `head -c 24000000 /dev/urandom >plenty.bin; echo work >work.txt; echo ready`

// TestCrash kills what a run is made of, at each state and at random moments, and
// looks at what is left after the next start: nothing, and no run without an end.
func TestCrash(t *testing.T) {
	g := newGarden(t)
	g.shell(`cd "$1" && echo changed >>base.txt && echo untracked >untracked.txt && echo staged >staged.txt && git add staged.txt`, g.repo)
	w := witness{g, mustFingerprint(t, g.repo)}
	t.Run("states", func(t *testing.T) { killAtEachState(t, w) })
	t.Run("parts", func(t *testing.T) { killEachPart(t, w) })
	t.Run("several", func(t *testing.T) { killSeveral(t, w) })
	t.Run("interrupted write", func(t *testing.T) { interruptedWrite(t, w.in(t)) })
	t.Run("probe", func(t *testing.T) { killProbe(t, w.in(t)) })
	t.Run("recovery", func(t *testing.T) { killRecovery(t, w.in(t)) })
	t.Run("random", func(t *testing.T) { killAtRandom(t, w.in(t)) })
}

func TestCrashAsOrdinaryUser(t *testing.T) {
	privateControlGroup(t)
	asOrdinaryUser(t, "TestCrash", "SOAK_KILLS="+os.Getenv("SOAK_KILLS"), "SOAK_SEED="+os.Getenv("SOAK_SEED"))
}

// privateControlGroup makes a group that an ordinary user cannot look into, as other
// programs do. It must not keep anybody from recovering.
func privateControlGroup(t *testing.T) {
	t.Helper()
	if os.Getuid() != 0 {
		return
	}
	for _, hierarchy := range []string{"unified", "pids", "."} {
		dir := filepath.Join("/sys/fs/cgroup", hierarchy, "private-"+rand.Text())
		if os.Mkdir(dir, 0o700) == nil {
			t.Cleanup(func() { os.Remove(dir) })
			return
		}
	}
	t.Log("no control group can be made here, so there is no private one")
}

// witness knows what a repository was like before anything was killed.
type witness struct {
	*garden
	before string
}

// in is the same witness for a subtest.
func (w witness) in(t *testing.T) witness { return witness{w.garden.in(t), w.before} }

func mustFingerprint(t testing.TB, dir string) string {
	t.Helper()
	text, err := fingerprintOf(dir)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// afterNextStart lets the next tendril recover, and holds it to its promise.
func (w witness) afterNextStart() []run.Run {
	t := w.t
	t.Helper()
	listed := w.succeed("run", "list", "--limit", "1000", "--json")
	w.nothingLeft()
	var runs []run.Run
	if err := json.Unmarshal([]byte(listed.stdout), &runs); err != nil {
		t.Fatal(err)
	}
	var branches []string
	for _, r := range runs {
		if !r.State.Ended() {
			t.Errorf("run %s is stuck: %s", r.ID, r.State)
		}
		if r.Branch == nil {
			if r.State == run.Fruited {
				t.Errorf("run %s is fruited and has no branch", r.ID)
			}
			continue
		}
		branches = append(branches, *r.Branch+" "+*r.Commit)
		if r.State != run.Fruited && r.State != run.Stopped && r.State != run.Withered {
			t.Errorf("run %s is %s and has the branch %s", r.ID, r.State, *r.Branch)
		}
		if r.Changed == 0 {
			t.Errorf("run %s has the branch %s, and its record says that nothing changed", r.ID, *r.Branch)
		}
	}
	slices.Sort(branches)
	refs := w.git("for-each-ref", "--format=%(refname:short) %(objectname)", "--sort=refname", "refs/heads/tendril")
	if want := strings.Join(branches, "\n"); refs != want {
		t.Errorf("the repository has the branches\n%s\nand the records name\n%s", refs, want)
	}
	w.git("fsck", "--strict", "--no-dangling")
	return runs
}

func (w witness) nothingLeft() {
	t := w.t
	t.Helper()
	if left := w.leftovers(); len(left) > 0 {
		t.Errorf("left behind:\n%s", strings.Join(left, "\n"))
	}
	if after := mustFingerprint(t, w.repo); after != w.before {
		t.Errorf("the repository has changed:\n%s", firstDifference(w.before, after))
	}
}

func firstDifference(before, after string) string {
	a, b := strings.Split(before, "\n"), strings.Split(after, "\n")
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return "before: " + a[i] + "\nafter:  " + b[i]
		}
	}
	return "one is longer"
}

func find(runs []run.Run, id run.ID) run.Run {
	for _, r := range runs {
		if r.ID == id {
			return r
		}
	}
	return run.Run{}
}

func (w witness) branchFile(id run.ID) string {
	return filepath.Join(w.repo, ".git/refs/heads", id.Branch())
}

// moment is when to kill a Stem.
type moment struct {
	state run.State
	also  func(run.Run) bool // nil: any time in that state
}

func (m moment) is(r run.Run) bool { return r.State == m.state && (m.also == nil || m.also(r)) }

// isOver reports whether the moment cannot come any more.
func (m moment) isOver(r run.Run) bool {
	return slices.Index(run.States(), r.State) > slices.Index(run.States(), m.state)
}

// killWhen starts a run and kills its Stem as soon as the moment is seen, or is over.
// What it returns is what the Stem left in the database, and whether that is the
// moment.
func (w witness) killWhen(script string, when moment, flags ...string) (run.Run, bool) {
	w.t.Helper()
	before := known(w.runs())
	p := w.grow(script, flags...)
	for !p.hasEnded() {
		if r, there := w.newest(before); there && (when.is(r) || when.isOver(r)) {
			p.kill()
			r = w.get(r.ID)
			return r, when.is(r)
		}
	}
	return run.Run{}, false
}

func killAtEachState(t *testing.T, w witness) {
	withBranch := func(r run.Run) bool { return exists(w.branchFile(r.ID)) }
	withoutBranch := func(r run.Run) bool { return !withBranch(r) }
	for _, c := range []struct {
		name, script string
		flags        []string
		when         moment
		becomes      run.State
	}{
		{"queued", endless, nil, moment{run.Queued, nil}, run.Lost},
		{"preparing", endless, nil, moment{run.Preparing, nil}, run.Lost},
		{"running", endless, nil, moment{run.Running, nil}, run.Lost},
		{"collecting", plenty, nil, moment{run.Collecting, withoutBranch}, run.Lost},
		{"with the branch", plenty, nil, moment{run.Collecting, withBranch}, run.Fruited},
		{"stopped, with the branch", plenty + "; sleep 1000", []string{"--wall", "3s"}, moment{run.Collecting, withBranch}, run.Stopped},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := w.in(t)
			// Some states are over within a millisecond: what counts is the state
			// that the database has after the kill.
			for range 100 {
				left, hit := w.killWhen(c.script, c.when, c.flags...)
				runs := w.afterNextStart()
				if !hit {
					continue
				}
				r := find(runs, left.ID)
				if r.State != c.becomes {
					t.Errorf("the run is %s, and should be %s", r.State, c.becomes)
				}
				if c.becomes != run.Lost {
					w.git("cat-file", "-e", r.ID.Branch()+":plenty.bin")
				}
				return
			}
			t.Fatal("the Stem was never killed in that state")
		})
	}
}

// part finds one process of a run by how its arguments begin.
func (w witness) part(p *growing, name string) (hostProcess, bool) {
	w.t.Helper()
	for _, d := range descendants(w.t, p.pid()) {
		if strings.HasPrefix(d.command, name) {
			return d, true
		}
	}
	return hostProcess{}, false
}

var parts = []string{"runsc-keeper", "runsc-sandbox", "runsc-gofer"}

// killEachPart kills one process of the wall: the run ends by itself and says that
// the boundary broke.
func killEachPart(t *testing.T, w witness) {
	for _, name := range parts {
		t.Run(name, func(t *testing.T) {
			w := w.in(t)
			before := known(w.runs())
			p := w.grow(endless, "--wall", "20s")
			r := w.awaitOutput(p, before, "ready")
			victim, there := w.part(p, name)
			if !there {
				t.Fatalf("there is no %s among %v", name, descendants(t, p.pid()))
			}
			syscall.Kill(victim.pid, syscall.SIGKILL)
			a := p.wait()
			w.nothingLeft()
			if r = w.get(r.ID); r.State != run.Withered || r.Error == nil || a.status != run.ExitInternal {
				t.Errorf("the run is %s (%+v), exit status %d", r.State, r.Error, a.status)
			}
			w.afterNextStart()
		})
	}
}

// killSeveral kills a Stem together with, or before, what should have followed it.
func killSeveral(t *testing.T, w witness) {
	for _, c := range []struct {
		name string
		kill func(w witness, p *growing)
	}{
		{"keeper and Stem", func(w witness, p *growing) {
			keeper, _ := w.part(p, "runsc-keeper")
			syscall.Kill(p.pid(), syscall.SIGSTOP)
			syscall.Kill(keeper.pid, syscall.SIGKILL)
		}},
		{"everything", func(w witness, p *growing) {
			syscall.Kill(p.pid(), syscall.SIGSTOP)
			for _, d := range descendants(w.t, p.pid()) {
				syscall.Kill(d.pid, syscall.SIGKILL)
			}
		}},
		{"a keeper that hangs", func(w witness, p *growing) {
			keeper, _ := w.part(p, "runsc-keeper")
			syscall.Kill(keeper.pid, syscall.SIGSTOP)
		}},
		{"a sandbox that hangs", func(w witness, p *growing) {
			sandbox, _ := w.part(p, "runsc-sandbox")
			syscall.Kill(sandbox.pid, syscall.SIGSTOP)
		}},
		{"two interrupts", func(w witness, p *growing) {
			// The second one is for a person who does not want to wait.
			syscall.Kill(p.pid(), syscall.SIGINT)
			syscall.Kill(p.pid(), syscall.SIGINT)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := w.in(t)
			before := known(w.runs())
			p := w.grow(endless)
			r := w.awaitOutput(p, before, "ready")
			c.kill(w, p)
			p.kill()
			runs := w.afterNextStart()
			if r = find(runs, r.ID); r.State != run.Lost && r.State != run.Stopped {
				t.Errorf("the run is %s", r.State)
			}
		})
	}
}

// interruptedWrite puts down what a Stem leaves that is killed in the middle of a
// write into the repository, which is too short to be hit from outside.
func interruptedWrite(t *testing.T, w witness) {
	collecting := moment{run.Collecting, func(r run.Run) bool { return !exists(w.branchFile(r.ID)) }}
	left, hit := w.killWhen(plenty, collecting)
	for range 20 {
		if !hit {
			left, hit = w.killWhen(plenty, collecting)
		}
	}
	if !hit {
		t.Fatal("the Stem was never killed while it collected")
	}
	pack := filepath.Join(w.repo, ".git/objects/pack")
	for _, path := range []string{
		w.branchFile(left.ID) + ".lock",
		filepath.Join(pack, "tmp_tendril_"+string(left.ID)+"_X_pack-0123_pack"),
		filepath.Join(pack, "tmp_tendril_"+string(left.ID)+"_X_pack-0123_idx"),
		filepath.Join(w.state, "store/base/0123.erofs.lock"),
	} {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("interrupted"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	w.afterNextStart()
}

// killProbe kills a probe of the wall, which is a run that has no record.
func killProbe(t *testing.T, w witness) {
	p := w.start("terrarium", "probe", "--json")
	w.eventually("the probe has a wall", func() bool {
		if p.hasEnded() {
			t.Fatalf("the probe has ended: %+v", p.wait())
		}
		_, there := w.part(p, "runsc-sandbox")
		return there
	})
	p.kill()
	w.afterNextStart()
}

// killRecovery kills those who clean up, too, and lets several do it at once.
func killRecovery(t *testing.T, w witness) {
	for _, delay := range []time.Duration{0, 5 * time.Millisecond, 20 * time.Millisecond, 40 * time.Millisecond, 80 * time.Millisecond} {
		left, hit := w.killWhen(endless, moment{state: run.Running})
		if !hit {
			t.Fatal("the run was not killed while it ran")
		}
		killed := w.start("run", "list")
		select {
		case <-killed.ended:
		case <-time.After(delay):
		}
		killed.kill()
		var together []*growing
		for range 3 {
			together = append(together, w.start("run", "list"))
		}
		for _, p := range together {
			if a := p.wait(); a.status != 0 {
				t.Errorf("one of several that recover at once: status %d: %s", a.status, a.stderr)
			}
		}
		if r := find(w.afterNextStart(), left.ID); r.State != run.Lost {
			t.Errorf("the run is %s", r.State)
		}
	}
}

// killAtRandom kills the Stem, a part of the wall or all at once, at a moment
// between the start and shortly after the end.
func killAtRandom(t *testing.T, w witness) {
	kills := number(t, "SOAK_KILLS", 10)
	seed := number(t, "SOAK_SEED", int(time.Now().UnixNano()&0x7fffffff))
	t.Logf("%d kills with SOAK_SEED=%d", kills, seed)
	random := pseudo.New(pseudo.NewPCG(uint64(seed), 0))
	const script = `head -c 3000000 /dev/urandom >big.bin; echo ready; rm old.txt; chmod +x run.sh`
	began := time.Now()
	if a := w.grow(script).wait(); a.status != 0 {
		t.Fatalf("undisturbed: status %d: %s", a.status, a.stderr)
	}
	length := time.Since(began)
	for i := range kills {
		moment := time.Duration(random.Int64N(int64(length + length/10)))
		victim := random.IntN(6) // a part, everything, or the Stem
		p := w.grow(script)
		select {
		case <-p.ended:
		case <-time.After(moment):
		}
		switch {
		case victim < len(parts):
			if d, there := w.part(p, parts[victim]); there {
				syscall.Kill(d.pid, syscall.SIGKILL)
				p.wait()
				w.nothingLeft()
			}
		case victim == len(parts):
			syscall.Kill(p.pid(), syscall.SIGSTOP)
			for _, d := range descendants(w.t, p.pid()) {
				syscall.Kill(d.pid, syscall.SIGKILL)
			}
		}
		p.kill()
		w.afterNextStart()
		if t.Failed() {
			t.Fatalf("kill %d of %d, of victim %d after %v; SOAK_SEED=%d", i+1, kills, victim, moment, seed)
		}
	}
}

// number reads a number from the environment.
func number(t *testing.T, name string, otherwise int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		t.Fatalf("%s=%q is no number", name, text)
	}
	return n
}
