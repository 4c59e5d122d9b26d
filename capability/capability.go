// Package capability declares everything that the Stem can be asked to do: the
// names, the Branch each belongs to, its impact, and the types that go in and
// come out.
//
// The command line, the routes and the tools are projections of this list, and
// all of them are called through the Stem's Invoke, where authority sits. The
// package promises that what [Decode] accepts means what it says: no unknown or
// repeated key, no key in another case, no text that had to be repaired. It
// checks form and range; whether the actor may, and whether the thing exists,
// is the Stem's to say.
package capability

import (
	"reflect"

	"tendril/fault"
	"tendril/run"
	"tendril/spelling"
)

// Branch is a zone of authority.
type Branch string

// The Branches. A Pollen holds capabilities of the first four by its grant;
// those of Control are the Botanist's alone and cannot be granted.
const (
	Observe Branch = "observe" // look at runs and their Fruit
	Grow    Branch = "grow"    // make work happen behind a wall
	Reach   Branch = "reach"   // reach out of the site
	Publish Branch = "publish" // effects that others see
	Control Branch = "control" // change what is allowed, and accept Fruit
)

// Impact is the worst that a capability does when it is used as intended.
type Impact string

// The impacts.
const (
	Read         Impact = "read"         // changes nothing that outlives the call
	Write        Impact = "write"        // changes something that can be changed back
	Irreversible Impact = "irreversible" // changes something that the Stem cannot change back
)

// Definition declares one capability.
type Definition struct {
	Name    string // noun.verb, as on the command line with a space
	Branch  Branch
	Impact  Impact
	Input   reflect.Type // a struct; [Decode] fills a pointer to one
	Output  reflect.Type
	Summary string // one line, for help and for tools
	Streams bool   // emits events while it works, see [WithEvents], and returns its output at the end
}

// All returns the capabilities, in the order in which help lists them. The
// slice is the caller's.
func All() []Definition {
	return []Definition{
		{
			Name: "sprout.grow", Branch: Grow, Impact: Write,
			Input: reflect.TypeFor[GrowInput](), Output: reflect.TypeFor[run.Run](), Streams: true,
			Summary: "run a command behind a wall and hand its work over as a branch",
		}, {
			Name: "run.list", Branch: Observe, Impact: Read,
			Input: reflect.TypeFor[ListInput](), Output: reflect.TypeFor[[]run.Run](),
			Summary: "list runs, the newest first",
		}, {
			Name: "run.get", Branch: Observe, Impact: Read,
			Input: reflect.TypeFor[RunInput](), Output: reflect.TypeFor[run.Run](),
			Summary: "show the record of one run",
		}, {
			Name: "run.watch", Branch: Observe, Impact: Read,
			Input: reflect.TypeFor[WatchInput](), Output: reflect.TypeFor[run.Run](), Streams: true,
			Summary: "follow the events of a run until it ends",
		}, {
			Name: "run.logs", Branch: Observe, Impact: Read,
			Input: reflect.TypeFor[LogsInput](), Output: reflect.TypeFor[run.Run](), Streams: true,
			Summary: "show what a Sprout wrote to its stdout and stderr",
		}, {
			// What the Sprout had not done yet is gone; what it did is handed over.
			Name: "run.cancel", Branch: Grow, Impact: Irreversible,
			Input: reflect.TypeFor[RunInput](), Output: reflect.TypeFor[run.Run](),
			Summary: "ask a run to stop and to hand over what it has",
		}, {
			Name: "fruit.diff", Branch: Observe, Impact: Read,
			Input: reflect.TypeFor[DiffInput](), Output: reflect.TypeFor[Diff](),
			Summary: "show what a Fruit changes and what a reviewer must see",
		}, {
			Name: "fruit.accept", Branch: Control, Impact: Write,
			Input: reflect.TypeFor[AcceptInput](), Output: reflect.TypeFor[Acceptance](),
			Summary: "merge a Fruit into a branch",
		}, {
			// Git may collect the objects once no branch holds them.
			Name: "fruit.reject", Branch: Control, Impact: Irreversible,
			Input: reflect.TypeFor[RunInput](), Output: reflect.TypeFor[Rejection](),
			Summary: "remove the branch of a Fruit",
		}, {
			Name: "terrarium.list", Branch: Observe, Impact: Read,
			Input: reflect.TypeFor[TerrariumListInput](), Output: reflect.TypeFor[[]Terrarium](),
			Summary: "list the walls and whether this host can build them",
		}, {
			Name: "terrarium.probe", Branch: Grow, Impact: Write,
			Input: reflect.TypeFor[ProbeInput](), Output: reflect.TypeFor[ProbeReport](),
			Summary: "build a wall and try to get out of it",
		},
	}
}

// Lookup returns the capability with exactly that name, and a fault of the kind
// not-found for any other.
func Lookup(name string) (Definition, error) {
	all := All()
	names := make([]string, len(all))
	for i, definition := range all {
		if definition.Name == name {
			return definition, nil
		}
		names[i] = definition.Name
	}
	err := fault.New(fault.NotFound, "there is no capability %q", name)
	if nearest, ok := spelling.Nearest(name, names); ok {
		err = err.WithHint("did you mean %s?", nearest)
	}
	return Definition{}, err
}
