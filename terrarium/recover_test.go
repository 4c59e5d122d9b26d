package terrarium_test

import (
	"context"
	"strings"
	"testing"

	"tendril/fault"
	"tendril/terrarium"
)

// keeper is a liar whose Terrariums leave something.
type keeper struct{ *liar }

func (k keeper) Recover(ctx context.Context, spec terrarium.Spec) (terrarium.Terrarium, error) {
	return k.Open(ctx, spec)
}

// TestRecoverJudges: what an earlier Terrarium left is given out under the rules of a new
// one, and a provider that leaves nothing says so.
func TestRecoverJudges(t *testing.T) {
	for _, wrap := range []func(terrarium.Provider) terrarium.Provider{
		func(p terrarium.Provider) terrarium.Provider { return p }, terrarium.Validated,
	} {
		l := honest()
		if _, err := terrarium.Recover(t.Context(), wrap(l), askedSpec()); !fault.Is(err, fault.NotFound) {
			t.Errorf("a provider that leaves nothing was answered for with %v", err)
		}
		opened, err := terrarium.Recover(t.Context(), wrap(keeper{l}), askedSpec())
		if err != nil {
			t.Fatal(err)
		}
		if err := opened.Close(t.Context()); err != nil || l.opened != 1 || l.closed != 1 {
			t.Errorf("opened %d times, closed %d times (%v)", l.opened, l.closed, err)
		}
		l.rows = change("Network", func(r *terrarium.Row) { r.Applied = "something else" })
		if _, err := terrarium.Recover(t.Context(), wrap(keeper{l}), askedSpec()); !fault.Is(err, fault.BrokenBoundary) || l.closed != 2 {
			t.Errorf("another boundary than asked was answered with %v, and closed %d times", err, l.closed)
		}
		spec := askedSpec()
		spec.Run = ""
		if _, err := terrarium.Recover(t.Context(), wrap(keeper{l}), spec); !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "run") {
			t.Errorf("no run was answered with %v", err)
		}
	}
}
