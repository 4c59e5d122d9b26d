//go:build linux

package stem

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"time"

	"tendril/capability"
	"tendril/fault"
	"tendril/ledger"
	"tendril/policy"
	"tendril/terrarium"
)

// call is one request on its way through Invoke. Each step adds what it found out;
// a handler gets it whole.
type call struct {
	digest   func([]byte) string // of what the ledger must not hold
	name     string              // as it was asked for
	input    capability.Request
	actor    Actor
	proven   bool // the actor is who asks, and not only whose proof was refused
	permit   permit
	provider terrarium.Provider // of a request that asks for a Terrarium
	row      int64              // the decision's in the ledger

	overridden policy.Mask // what the Botanist took although the policy denies it
}

// handler does the work of one capability, on a call that was permitted.
type handler struct {
	input, output reflect.Type
	do            func(s *Stem, ctx context.Context, c *call, input any) (any, error)
}

// handlers has one for each capability, of the types that its definition says; a
// test compares the two.
var handlers = map[string]handler{
	"sprout.grow":       handle((*Stem).grow),
	"stoma.pass":        handle((*Stem).pass),
	"run.list":          handle((*Stem).listRuns),
	"run.get":           handle((*Stem).getRun),
	"run.watch":         handle((*Stem).watchRun),
	"run.logs":          handle((*Stem).logsOfRun),
	"run.cancel":        handle((*Stem).cancelRun),
	"fruit.diff":        handle((*Stem).diffFruit),
	"fruit.accept":      handle((*Stem).acceptFruit),
	"fruit.reject":      handle((*Stem).rejectFruit),
	"terrarium.list":    handle((*Stem).listTerrariums),
	"terrarium.probe":   handle((*Stem).probeTerrarium),
	"substrate.list":    handle((*Stem).listSubstrates),
	"substrate.add":     handle((*Stem).addSubstrate),
	"substrate.remove":  handle((*Stem).removeSubstrate),
	"pollen.issue":      handle((*Stem).issuePollen),
	"pollen.list":       handle((*Stem).listPollens),
	"pollen.rotate":     handle((*Stem).rotatePollen),
	"pollen.revoke":     handle((*Stem).revokePollen),
	"grant.add":         handle((*Stem).addGrant),
	"grant.list":        handle((*Stem).listGrants),
	"grant.revoke":      handle((*Stem).revokeGrant),
	"grant.check":       handle((*Stem).checkGrants),
	"grant.explain":     handle((*Stem).explainGrant),
	"ledger.tail":       handle((*Stem).tailLedger),
	"ledger.export":     handle((*Stem).exportLedger),
	"ledger.checkpoint": handle((*Stem).checkpointLedger),
	"egress.fetch":      handle((*Stem).fetch),
	"egress.explain":    handle((*Stem).explainEgress),
	"credential.add":    handle((*Stem).addCredential),
	"credential.list":   handle((*Stem).listCredentials),
	"credential.remove": handle((*Stem).removeCredential),
}

func handle[In, Out any](do func(*Stem, context.Context, *call, In) (Out, error)) handler {
	return handler{reflect.TypeFor[In](), reflect.TypeFor[Out](), func(s *Stem, ctx context.Context, c *call, input any) (any, error) {
		return do(s, ctx, c, input.(In))
	}}
}

// Answer is what came of a request.
type Answer struct {
	Output any    // of the capability's output type; nil with an error
	Row    *int64 // the decision's row in the ledger; nil if it could not be recorded
	Actor  Actor  // who it was, as far as that is known

	// Proven says that the Actor is who asked. Without it the Actor only names whose
	// proof was refused.
	Proven bool
}

// Invoke does what the caller asks. It is the only way to a handler: who asks,
// whether they may, and what is written down of it, is decided here and nowhere
// else. input has to be of the capability's input type.
//
// A Streams capability emits events through the context while it works, see
// [capability.WithEvents].
func (s *Stem) Invoke(ctx context.Context, who Presented, name string, input any) (Answer, error) {
	return s.invoke(ctx, who, name, func(d capability.Definition) (capability.Request, error) {
		if got := reflect.TypeOf(input); got != d.Input {
			return nil, fault.New(fault.Internal, "%s takes %v, not %v", name, d.Input, got)
		}
		return input.(capability.Request), nil
	})
}

// InvokeJSON is Invoke for an input that is still JSON.
func (s *Stem) InvokeJSON(ctx context.Context, who Presented, name string, input []byte) (Answer, error) {
	return s.invoke(ctx, who, name, func(d capability.Definition) (capability.Request, error) {
		value := reflect.New(d.Input)
		if err := capability.Decode(input, value.Interface()); err != nil {
			return nil, err
		}
		return value.Elem().Interface().(capability.Request), nil
	})
}

func (s *Stem) invoke(ctx context.Context, who Presented, name string, read func(capability.Definition) (capability.Request, error)) (Answer, error) {
	c := &call{name: name, digest: s.state.Digest}
	refusal := s.decide(ctx, c, who, read)
	// What was decided is written down also for a caller who is gone by now.
	rows, err := s.state.Record(context.WithoutCancel(ctx), c.decision(refusal))
	answer := Answer{Actor: c.actor, Proven: c.proven}
	if err == nil {
		c.row = rows[0].Seq
		answer.Row = &c.row
	}
	if refusal != nil || err != nil {
		return answer, errors.Join(c.hide(s, refusal), err)
	}
	working, done := s.whilePermitted(ctx, c)
	defer done()
	output, err := handlers[name].do(s, working, c, c.input)
	if fault.Is(err, fault.Unavailable) && working.Err() != nil {
		err = errors.Join(err, working.Err()) // what was given up may say only that it was out of reach
	}
	err = c.hide(s, c.ended(working, err))
	if definition, _ := capability.Lookup(name); definition.Impact != capability.Read {
		_, lost := s.state.Record(context.WithoutCancel(ctx), c.outcome(err))
		err = errors.Join(err, lost)
	}
	if err == nil {
		answer.Output = c.fit(output)
	}
	return answer, err
}

// decide goes from what arrived to a permit, or to the reason why there is none. It
// changes nothing. What it learns on the way stays in c, also for a refusal, because
// that is recorded.
func (s *Stem) decide(ctx context.Context, c *call, who Presented, read func(capability.Definition) (capability.Request, error)) error {
	definition, unknown := capability.Lookup(c.name)
	var malformed error
	if unknown == nil {
		c.input, malformed = read(definition) // first, so that a refusal can name what it is about
	}
	var err error
	if c.actor, err = s.authenticate(ctx, who); err != nil {
		return c.deny(err)
	}
	c.proven = true
	if err := errors.Join(unknown, malformed); err != nil {
		return err
	}
	return s.judge(ctx, c, definition)
}

// judge decides on a request that was understood, of an actor who is known: by the
// grant, then by the policy, then by whether somebody has to approve of it.
func (s *Stem) judge(ctx context.Context, c *call, d capability.Definition) error {
	today, err := s.state.RunsOn(ctx, c.actor.Name(), time.Now())
	if err != nil {
		return err
	}
	if c.permit, err = s.authorise(ctx, c.actor, d, c.input, today); err != nil {
		return c.deny(err)
	}
	if err := c.input.Validate(); err != nil {
		return err
	}
	if err := c.published(); err != nil {
		return c.deny(err)
	}
	if walled, ok := c.input.(capability.Walled); ok {
		if c.provider, err = s.choose(ctx, walled, c.permit); err != nil {
			return err
		}
	}
	if actionsOf[c.name] != nil {
		if err := c.permitted(fault.Denied, "declared", c.declared()); err != nil {
			return err
		}
	}
	if d.Branch == capability.Publish {
		return c.deny(fault.New(fault.NeedsApproval, "it needs a person's approval of exactly this action, and there is none").
			WithRule("the publish Branch needs an exact approval each time"))
	}
	return nil
}

// deny makes of a refusal one that says who, what and on what. Its rule and its
// hint stay. An error that is no refusal passes.
func (c *call) deny(err error) error {
	var f *fault.Error
	if !errors.As(err, &f) || f.Kind != fault.Denied && f.Kind != fault.NeedsApproval {
		return err
	}
	denied := fault.New(f.Kind, "%s may not %s on %s: %w", c.actor, clip(c.name), c.subject(), err)
	denied.Rule, denied.Hint = f.Rule, f.Hint
	return denied
}

// subject says in words what the call is about.
func (c *call) subject() string {
	if c.input == nil {
		return "this site"
	}
	switch about := c.input.Subject(); {
	case about.Run != "":
		return "run " + clip(string(about.Run))
	case about.Substrate != nil && about.Substrate.String() != "":
		return "Substrate " + clip(about.Substrate.String())
	default:
		return "this site"
	}
}

// decision is the ledger's row for what was decided.
func (c *call) decision(refusal error) ledger.Entry {
	e := c.entry(ledger.Decision)
	e.Decision, e.Digests = ledger.Permit, map[string]string{}
	if c.input != nil {
		// Keyed: an argument or a variable may be short enough to be guessed.
		if data, err := json.Marshal(c.input); err == nil {
			e.Digests["input"] = c.digest(data)
		}
	}
	if c.permit.grant != nil {
		e.Digests["grant"] = "sha256:" + c.permit.grant.Digest()
	}
	e.Rule = c.permit.rule
	if c.overridden != 0 {
		e.Rule += fmt.Sprintf("; for this run the Botanist takes the provider %s, which the policy denies (mask %d)", c.provider.Name(), c.overridden)
	}
	if refusal != nil {
		e.Decision, e.Fault, e.Rule = ledger.Deny, string(fault.KindOf(refusal)), ""
		var f *fault.Error
		if errors.As(refusal, &f) {
			e.Rule = f.Rule
		}
	}
	return e
}

// outcome is the ledger's row for what came of a permitted call.
func (c *call) outcome(err error) ledger.Entry {
	e := c.entry(ledger.Outcome)
	e.Of, e.State = &c.row, "done"
	if err != nil {
		e.State, e.Fault = "failed", string(fault.KindOf(err))
	}
	return e
}

// change is the ledger's row for a change that the call makes, of what target names.
func (c *call) change(what, target string) ledger.Entry {
	e := c.entry(ledger.Change)
	e.Of, e.Change, e.Target = &c.row, what, target
	return e
}

func (c *call) entry(kind ledger.Kind) ledger.Entry {
	e := ledger.Entry{Kind: kind, Actor: c.actor.Name(), Proof: c.actor.proof, UID: &c.actor.uid, Capability: c.name}
	if c.input != nil {
		about := c.input.Subject()
		e.Run = string(about.Run)
		if about.Substrate != nil {
			e.Subject = about.Substrate.String()
		}
	}
	return e
}

// clip bounds what a refusal repeats of what a caller sent.
func clip(s string) string {
	const most = 128
	if len(s) > most {
		return s[:most] + "…"
	}
	return s
}
