package capability

import (
	"context"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"tendril/fault"
	"tendril/run"
)

func TestEveryCapabilityIsDeclaredWhole(t *testing.T) {
	branches := map[Branch]bool{Observe: true, Grow: true, Reach: true, Publish: true, Control: true}
	impacts := map[Impact]bool{Read: true, Write: true, Irreversible: true}
	request := reflect.TypeFor[Request]()
	seen := map[string]bool{}
	for _, d := range All() {
		if seen[d.Name] {
			t.Errorf("%s comes twice", d.Name)
		}
		seen[d.Name] = true
		if !regexp.MustCompile(`^[a-z]+\.[a-z]+$`).MatchString(d.Name) {
			t.Errorf("%q is not noun.verb", d.Name)
		}
		if !branches[d.Branch] || !impacts[d.Impact] {
			t.Errorf("%s: Branch %q, impact %q", d.Name, d.Branch, d.Impact)
		}
		if d.Branch == Observe && d.Impact != Read {
			t.Errorf("%s is on the Branch that only looks and has the impact %s", d.Name, d.Impact)
		}
		if d.Input.Kind() != reflect.Struct || !d.Input.Implements(request) {
			t.Errorf("%s: the input %s is not a struct with Validate and Subject", d.Name, d.Input)
		}
		if d.Output == nil || d.Summary == "" || strings.ContainsAny(d.Summary, "\n.") {
			t.Errorf("%s: output %v, summary %q", d.Name, d.Output, d.Summary)
		}
		for _, typ := range []reflect.Type{d.Input, d.Output} {
			everyKeyIsNamed(t, typ)
		}
		if got, err := Lookup(d.Name); err != nil || got.Name != d.Name {
			t.Errorf("Lookup(%s) = %v, %v", d.Name, got, err)
		}
	}
}

// everyKeyIsNamed: Decode and the adapters know a field by its json tag alone.
func everyKeyIsNamed(t *testing.T, typ reflect.Type) {
	t.Helper()
	for typ.Kind() == reflect.Slice || typ.Kind() == reflect.Pointer {
		typ = typ.Elem()
	}
	if typ.Kind() != reflect.Struct || typ == reflect.TypeFor[run.Substrate]() || typ == reflect.TypeFor[run.Time]() {
		return
	}
	for i := range typ.NumField() {
		f := typ.Field(i)
		if f.Anonymous {
			everyKeyIsNamed(t, f.Type)
			continue
		}
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); !regexp.MustCompile(`^[a-z][a-z0-9_]*$`).MatchString(name) {
			t.Errorf("%s.%s has the key %q", typ, f.Name, name)
		}
		everyKeyIsNamed(t, f.Type)
	}
}

// TestTheBotanistAloneAccepts pins which capabilities a grant can never hold.
func TestTheBotanistAloneAccepts(t *testing.T) {
	var control []string
	for _, d := range All() {
		if d.Branch == Control {
			control = append(control, d.Name)
		}
	}
	want := "credential.add credential.list credential.remove egress.explain fruit.accept fruit.reject grant.add grant.check grant.explain grant.list grant.revoke " +
		"ledger.checkpoint ledger.export ledger.tail pollen.issue pollen.list pollen.revoke pollen.rotate substrate.add substrate.remove"
	slices.Sort(control)
	if got := strings.Join(control, " "); got != want {
		t.Errorf("the control Branch holds %s", got)
	}
}

func TestLookupRefuses(t *testing.T) {
	for name, hint := range map[string]string{
		"":            "",
		"sprout grow": "did you mean sprout.grow?",
		"Run.List":    "did you mean run.list?",
		"fruit.dif":   "did you mean fruit.diff?",
		"git.push":    "",
	} {
		_, err := Lookup(name)
		if !fault.Is(err, fault.NotFound) {
			t.Errorf("Lookup(%q): %v", name, err)
		} else if got := err.(*fault.Error).Hint; got != hint {
			t.Errorf("Lookup(%q): hint %q, want %q", name, got, hint)
		}
	}
}

func TestAllIsTheCallers(t *testing.T) {
	All()[0].Name = "changed"
	if All()[0].Name == "changed" {
		t.Error("a caller can change the list")
	}
}

func TestEventsReachTheSinkOneAtATime(t *testing.T) {
	busy, seen := false, 0
	ctx := WithEvents(context.Background(), func(run.Event) {
		if busy {
			t.Error("two calls at once")
		}
		busy = true
		seen++
		busy = false
	})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 100 {
				Emit(ctx, run.Event{})
			}
		})
	}
	wg.Wait()
	if seen != 800 {
		t.Errorf("%d events came, 800 were emitted", seen)
	}
}

func TestWithoutStreams(t *testing.T) {
	Emit(t.Context(), run.Event{}) // nobody looks
	if Input(t.Context()) != nil || Resizes(t.Context()) != nil {
		t.Error("there is input that nobody gave")
	}
	sizes := make(chan Size)
	in := strings.NewReader("")
	ctx := WithResizes(WithInput(t.Context(), in), sizes)
	if Input(ctx) != in || Resizes(ctx) == nil {
		t.Error("what was given is not there")
	}
}
