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
			Name: "stoma.pass", Branch: Grow, Impact: Write,
			Input: reflect.TypeFor[PassInput](), Output: reflect.TypeFor[Pass](), Streams: true,
			Summary: "run a command behind a wall and return what it prints, without a Fruit",
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
		}, {
			Name: "substrate.list", Branch: Observe, Impact: Read,
			Input: reflect.TypeFor[EmptyInput](), Output: reflect.TypeFor[[]Substrate](),
			Summary: "list the Substrates that have a name",
		}, {
			Name: "substrate.add", Branch: Control, Impact: Write,
			Input: reflect.TypeFor[SubstrateAddInput](), Output: reflect.TypeFor[Substrate](),
			Summary: "bind a name to a repository",
		}, {
			Name: "substrate.remove", Branch: Control, Impact: Write,
			Input: reflect.TypeFor[SubstrateInput](), Output: reflect.TypeFor[Substrate](),
			Summary: "forget the name of a repository, and nothing else of it",
		}, {
			Name: "pollen.issue", Branch: Control, Impact: Write,
			Input: reflect.TypeFor[PollenIssueInput](), Output: reflect.TypeFor[IssuedPollen](),
			Summary: "issue an identity and show its token, once",
		}, {
			Name: "pollen.list", Branch: Control, Impact: Read,
			Input: reflect.TypeFor[EmptyInput](), Output: reflect.TypeFor[[]Pollen](),
			Summary: "list the identities that were issued",
		}, {
			Name: "pollen.rotate", Branch: Control, Impact: Irreversible,
			Input: reflect.TypeFor[PollenInput](), Output: reflect.TypeFor[IssuedPollen](),
			Summary: "give an identity another token; the one before proves nothing any more",
		}, {
			Name: "pollen.revoke", Branch: Control, Impact: Irreversible,
			Input: reflect.TypeFor[PollenInput](), Output: reflect.TypeFor[Pollen](),
			Summary: "end an identity and what runs on its behalf",
		}, {
			Name: "grant.add", Branch: Control, Impact: Write,
			Input: reflect.TypeFor[GrantAddInput](), Output: reflect.TypeFor[GrantChange](),
			Summary: "let a Pollen do more",
		}, {
			Name: "grant.list", Branch: Control, Impact: Read,
			Input: reflect.TypeFor[EmptyInput](), Output: reflect.TypeFor[[]Grant](),
			Summary: "list the grants in force",
		}, {
			Name: "grant.revoke", Branch: Control, Impact: Write,
			Input: reflect.TypeFor[GrantRevokeInput](), Output: reflect.TypeFor[GrantChange](),
			Summary: "take a class, a Substrate or everything from a Pollen's grants",
		}, {
			Name: "grant.check", Branch: Control, Impact: Read,
			Input: reflect.TypeFor[GrantCheckInput](), Output: reflect.TypeFor[GrantCheck](),
			Summary: "say whether a grants file is understood whole",
		}, {
			Name: "grant.explain", Branch: Control, Impact: Read,
			Input: reflect.TypeFor[GrantExplainInput](), Output: reflect.TypeFor[Explanation](),
			Summary: "say whether a Pollen may, by which rule, or what is missing",
		}, {
			Name: "ledger.tail", Branch: Control, Impact: Read,
			Input: reflect.TypeFor[LedgerPageInput](), Output: reflect.TypeFor[LedgerPage](),
			Summary: "show the newest rows of the ledger",
		}, {
			Name: "ledger.export", Branch: Control, Impact: Read,
			Input: reflect.TypeFor[LedgerPageInput](), Output: reflect.TypeFor[LedgerPage](),
			Summary: "print the ledger as it is, for whoever verifies it",
		}, {
			Name: "ledger.checkpoint", Branch: Control, Impact: Read,
			Input: reflect.TypeFor[EmptyInput](), Output: reflect.TypeFor[LedgerCheckpoint](),
			Summary: "show what to keep elsewhere, so that no rewrite goes unnoticed",
		}, {
			Name: "egress.fetch", Branch: Reach, Impact: Read,
			Input: reflect.TypeFor[FetchInput](), Output: reflect.TypeFor[Fetched](),
			Summary: "fetch one file from outside, as the grant permits",
		}, {
			Name: "egress.explain", Branch: Control, Impact: Read,
			Input: reflect.TypeFor[EgressExplainInput](), Output: reflect.TypeFor[EgressExplanation](),
			Summary: "say whether a request would leave, by which rule, and as what",
		}, {
			Name: "credential.add", Branch: Control, Impact: Write,
			Input: reflect.TypeFor[CredentialAddInput](), Output: reflect.TypeFor[Credential](),
			Summary: "say where a secret comes from and where it may be sent",
		}, {
			Name: "credential.list", Branch: Control, Impact: Read,
			Input: reflect.TypeFor[EmptyInput](), Output: reflect.TypeFor[[]Credential](),
			Summary: "list the credentials, without their secrets",
		}, {
			Name: "credential.remove", Branch: Control, Impact: Write,
			Input: reflect.TypeFor[CredentialInput](), Output: reflect.TypeFor[Credential](),
			Summary: "forget a credential; its secret stays where it is",
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
