//go:build linux

package stem

import (
	"context"
	"os"
	"reflect"
	"slices"
	"testing"

	"tendril/capability"
	"tendril/fault"
	"tendril/policy"
	"tendril/run"
	"tendril/site"
)

// bare is a Stem without a wall.
func bare(t testing.TB) *Stem {
	t.Helper()
	s, err := Open(t.Context(), Config{Site: siteOf(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// siteOf is a site of its own.
func siteOf(t testing.TB) site.Dirs {
	t.Helper()
	dir := t.TempDir()
	dirs, err := site.Find(func(name string) string {
		return map[string]string{"HOME": dir, "TENDRIL_CONFIG_DIR": dir + "/config", "TENDRIL_STATE_DIR": dir + "/state"}[name]
	}, os.Geteuid())
	if err == nil {
		dirs, err = dirs.Prepare()
	}
	if err != nil {
		t.Fatal(err)
	}
	return dirs
}

func TestEveryCapabilityHasItsHandler(t *testing.T) {
	defined := map[string]bool{}
	for _, definition := range capability.All() {
		defined[definition.Name] = true
		h, there := handlers[definition.Name]
		if !there {
			t.Errorf("%s has no handler", definition.Name)
			continue
		}
		if h.input != definition.Input || h.output != definition.Output {
			t.Errorf("%s takes %v and gives %v; its handler takes %v and gives %v",
				definition.Name, definition.Input, definition.Output, h.input, h.output)
		}
		actions := actionsOf[definition.Name]
		acts := slices.Contains([]capability.Branch{capability.Grow, capability.Reach, capability.Publish}, definition.Branch) &&
			definition.Name != "run.cancel" // which only ends what was permitted before
		if acts != (len(actions) > 0) {
			t.Errorf("%s is of the Branch %s; its actions, for the policy: %v", definition.Name, definition.Branch, actions)
		}
		_, walled := reflect.Zero(h.input).Interface().(capability.Walled)
		if computes := slices.Contains(actions, policy.ActionCompute) || slices.Contains(actions, policy.ActionEditWorkspace); computes != walled {
			t.Errorf("%s asks for a wall: %v; it runs somebody's work: %v", definition.Name, walled, computes)
		}
	}
	for name := range handlers {
		if !defined[name] {
			t.Errorf("the handler %s is for no capability", name)
		}
	}
}

func TestInvokeRefuses(t *testing.T) {
	s := bare(t)
	botanist := ByProcess()
	id := run.NewID()
	for name, c := range map[string]struct {
		who        Presented
		capability string
		input      any
		kind       fault.Kind
	}{
		"a name that nobody has":    {botanist, "run.lst", capability.ListInput{}, fault.NotFound},
		"a name in capitals":        {botanist, "Run.List", capability.ListInput{}, fault.NotFound},
		"no name":                   {botanist, "", capability.ListInput{}, fault.NotFound},
		"nobody":                    {Presented{}.WithToken(""), "run.list", capability.ListInput{}, fault.Denied},
		"another input":             {botanist, "run.list", capability.RunInput{Run: id}, fault.Internal},
		"a pointer to the input":    {botanist, "run.list", &capability.ListInput{}, fault.Internal},
		"no input":                  {botanist, "run.list", nil, fault.Internal},
		"an input out of range":     {botanist, "run.list", capability.ListInput{Limit: -1}, fault.Invalid},
		"an empty request":          {botanist, "sprout.grow", capability.GrowInput{}, fault.Invalid},
		"a run that is not there":   {botanist, "run.get", capability.RunInput{Run: id}, fault.NotFound},
		"a fruit that is not there": {botanist, "fruit.diff", capability.DiffInput{Run: id}, fault.NotFound},
		"no wall":                   {botanist, "terrarium.probe", capability.ProbeInput{}, fault.Unavailable},
		"a wall that is not there":  {botanist, "terrarium.probe", capability.ProbeInput{Provider: "brick"}, fault.NotFound},
	} {
		t.Run(name, func(t *testing.T) {
			output, err := s.Invoke(t.Context(), c.who, c.capability, c.input)
			if !fault.Is(err, c.kind) {
				t.Errorf("%v, %v; want %s", output, err, c.kind)
			}
		})
	}
}

func TestInvokeAnswersWithTheDefinedType(t *testing.T) {
	s := bare(t)
	answer, err := s.Invoke(t.Context(), ByProcess(), "run.list", capability.ListInput{})
	if runs, is := answer.Output.([]run.Run); err != nil || !is || runs == nil || len(runs) != 0 {
		t.Errorf("%#v, %v", answer.Output, err)
	}
	answer, err = s.Invoke(t.Context(), ByProcess(), "terrarium.list", capability.TerrariumListInput{})
	if walls, is := answer.Output.([]capability.Terrarium); err != nil || !is || walls == nil || len(walls) != 0 {
		t.Errorf("%#v, %v", answer.Output, err)
	}
}

// A watcher that nobody answers any more goes away with its context.
func TestWatchEndsWithItsContext(t *testing.T) {
	s := bare(t)
	id := run.NewID()
	if err := s.state.CreateRun(t.Context(), run.Run{ID: id, State: run.Queued, Pollen: "botanist", Substrate: run.Substrate{Path: "/r"}}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var seen []run.Event
	watching := capability.WithEvents(ctx, func(e run.Event) {
		seen = append(seen, e)
		cancel()
	})
	if _, err := s.Invoke(watching, ByProcess(), "run.watch", capability.WatchInput{Run: id}); err == nil {
		t.Error("watching a run that has not ended came to an end without a reason")
	}
	if len(seen) != 1 || seen[0].Data != (run.StateChange{State: run.Queued}) {
		t.Errorf("saw %v", seen)
	}
}
