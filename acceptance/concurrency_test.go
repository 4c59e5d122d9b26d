package acceptance_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"tendril/run"
)

// TestConcurrency runs several Sprouts at once, from processes of their own, on one
// repository and one state directory: they do not meet.
func TestConcurrency(t *testing.T) {
	g := newGarden(t)
	w := witness{g, mustFingerprint(t, g.repo)}
	t.Run("four at once", func(t *testing.T) { fourAtOnce(t, w.in(t)) })
	t.Run("recovery beside a living run", func(t *testing.T) { recoveryBesideALivingRun(t, w.in(t)) })
	for _, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		t.Run(signal.String(), func(t *testing.T) { endedBySignal(t, w.in(t), signal) })
	}
	t.Run("nohup", func(t *testing.T) { nohup(t, w.in(t)) })
}

// nohup starts a run as nohup(1) does: it survives its terminal.
func nohup(t *testing.T, w witness) {
	before := known(w.runs())
	p := w.startAs(`trap '' HUP; exec "$0" "$@"`, "grow", "--json", "--substrate", w.repo, "--stdin", "--", "sh", "-c", `echo ready; read line; echo "$line" >line.txt`)
	r := w.awaitOutput(p, before, "ready")
	if err := syscall.Kill(-p.pid(), syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintln(p.stdin, "still here")
	if a := p.wait(); a.status != 0 || w.git("show", r.ID.Branch()+":line.txt") != "still here" {
		t.Errorf("status %d: %s%s", a.status, a.stdout, a.stderr)
	}
	w.afterNextStart()
}

func TestConcurrencyAsOrdinaryUser(t *testing.T) {
	asOrdinaryUser(t, "TestConcurrency")
}

// record is the run record that grow printed.
func (g *garden) record(a answer) run.Run {
	g.t.Helper()
	var r run.Run
	if err := json.Unmarshal([]byte(a.stdout), &r); err != nil {
		g.t.Fatalf("status %d, and %v:\n%s%s", a.status, err, a.stdout, a.stderr)
	}
	return r
}

// changes lists what a run's branch changes.
func (g *garden) changes(r run.Run) string {
	g.t.Helper()
	return g.git("diff-tree", "-r", "--name-status", "--no-renames", *r.Base, *r.Commit)
}

func fourAtOnce(t *testing.T, w witness) {
	const runs = 4
	var growing [runs]*growing
	ids := map[int]run.ID{}
	for i := range runs {
		// Each says who it is and which processes it sees, itself included, and waits to
		// be told to end. The word that it is ready with does not stand in its arguments.
		growing[i] = w.grow(fmt.Sprintf(`echo I am number-%[1]d.; tr '\0' ' ' </proc/self/cmdline
			for p in /proc/[0-9]*; do tr '\0' ' ' <$p/cmdline; echo; done 2>/dev/null
			echo %[1]d >file-%[1]d.txt; is=ready; echo "$is-now"; read line; echo "$line" >>file-%[1]d.txt`, i), "--stdin")
	}
	w.eventually("all work at the same time", func() bool {
		for i, p := range growing {
			if p.hasEnded() {
				t.Fatalf("number %d has ended: %+v", i, p.wait())
			}
		}
		for _, r := range w.runs() {
			out := w.output(r.ID)
			for i := range runs {
				if r.State == run.Running && strings.Contains(out, fmt.Sprintf("I am number-%d.", i)) && strings.Contains(out, "ready-now") {
					ids[i] = r.ID
				}
			}
		}
		return len(ids) == runs
	})
	for i := range runs {
		for j := range runs {
			if i != j && strings.Contains(w.output(ids[i]), fmt.Sprintf("number-%d", j)) {
				t.Errorf("number %d sees a process of number %d:\n%s", i, j, w.output(ids[i]))
			}
		}
	}
	// One is cancelled; the others do not notice.
	const cancelled = 2
	w.succeed("run", "cancel", string(ids[cancelled]))
	a := growing[cancelled].wait()
	if r := w.record(a); a.status != run.ExitStopped || r.State != run.Stopped || r.Stop == nil || r.Stop.Cancel != "botanist" {
		t.Errorf("the cancelled one: status %d, %s, stop %+v", a.status, r.State, r.Stop)
	}
	for i, p := range growing {
		if i != cancelled {
			fmt.Fprintf(p.stdin, "end of %d\n", i)
		}
	}
	for i, p := range growing {
		a := p.wait()
		r := w.record(a)
		content := fmt.Sprintf("%d\nend of %d", i, i)
		if i == cancelled {
			content = fmt.Sprint(i)
		} else if a.status != 0 || r.State != run.Fruited {
			t.Errorf("number %d: status %d, %s, error %+v", i, a.status, r.State, r.Error)
		}
		if r.ID != ids[i] || r.Commit == nil {
			t.Fatalf("number %d: run %s, commit %v", i, r.ID, r.Commit)
		}
		name := fmt.Sprintf("file-%d.txt", i)
		if got := w.changes(r); got != "A\t"+name {
			t.Errorf("number %d changed:\n%s", i, got)
		}
		if got := w.git("show", r.ID.Branch()+":"+name); got != content {
			t.Errorf("number %d wrote %q, and should have written %q", i, got, content)
		}
	}
	w.afterNextStart()
}

// recoveryBesideALivingRun recovers a run that was killed while another lives.
func recoveryBesideALivingRun(t *testing.T, w witness) {
	before := known(w.runs())
	living := w.grow(`echo ready; read line; echo "$line" >living.txt`, "--stdin")
	alive := w.awaitOutput(living, before, "ready")
	dead, hit := w.killWhen(endless, moment{state: run.Running})
	if !hit {
		t.Fatal("the other run was not killed while it ran")
	}
	w.succeed("run", "list")
	if r := w.get(dead.ID); r.State != run.Lost {
		t.Errorf("the killed run is %s", r.State)
	}
	if r := w.get(alive.ID); r.State != run.Running {
		t.Errorf("the living run is %s", r.State)
	}
	fmt.Fprintln(living.stdin, "still here")
	if a := living.wait(); a.status != 0 || w.git("show", alive.ID.Branch()+":living.txt") != "still here" {
		t.Errorf("the living run: status %d\n%s", a.status, a.stderr)
	}
	w.afterNextStart()
}

// endedBySignal ends a run as Ctrl-C in a terminal does, or closing it, with a
// signal to the process group: its work is kept.
func endedBySignal(t *testing.T, w witness, signal syscall.Signal) {
	before := known(w.runs())
	p := w.grow(`trap '' INT TERM HUP; ` + endless)
	w.awaitOutput(p, before, "ready")
	if err := syscall.Kill(-p.pid(), signal); err != nil {
		t.Fatal(err)
	}
	a := p.wait()
	r := w.record(a)
	if a.status != run.ExitStopped || r.State != run.Stopped || !r.Partial {
		t.Errorf("status %d, %s, partial %v, error %+v", a.status, r.State, r.Partial, r.Error)
	}
	if !strings.Contains(a.stdout, `"stop":{"cancel":"botanist"}`) {
		t.Errorf("the record does not say who stopped it: %s", a.stdout)
	}
	if got := w.changes(r); got != "A\twork.txt" {
		t.Errorf("the work that was kept: %q", got)
	}
	w.afterNextStart()
}
