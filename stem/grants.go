//go:build linux

package stem

import (
	"context"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"tendril/capability"
	"tendril/destination"
	"tendril/fault"
	"tendril/grant"
	"tendril/pollen"
)

// grants is the grants file in force.
func (s *Stem) grants() (grant.File, error) {
	file, err := s.grantsFile.Current()
	return file, s.tolerate(grant.FileName, err, file.Version)
}

func (s *Stem) listGrants(ctx context.Context, _ *call, _ capability.EmptyInput) ([]capability.Grant, error) {
	file, err := s.grants()
	if err != nil {
		return nil, err
	}
	now, list := time.Now(), []capability.Grant{}
	for _, g := range file.Grants {
		text, err := json.Marshal(g)
		if err != nil {
			return nil, err
		}
		live := g.Expires == nil || !g.Expires.Passed(now)
		if string(g.Pollen) != string(pollen.Botanist) {
			record, err := s.state.Pollen(ctx, pollen.Name(g.Pollen))
			if err != nil && !fault.Is(err, fault.NotFound) {
				return nil, err
			}
			live = live && err == nil && record.Revoked == nil && now.Before(record.Expires)
		}
		list = append(list, capability.Grant{Line: int(g.Line), Digest: "sha256:" + g.Digest(), Grant: text, Live: live})
	}
	return list, nil
}

func (s *Stem) addGrant(ctx context.Context, c *call, in capability.GrantAddInput) (capability.GrantChange, error) {
	added, err := grantOf(in)
	if err != nil {
		return capability.GrantChange{}, err
	}
	file, err := s.edit(ctx, c, grant.FileName, "grant.added", in.Pollen, func(path string, text []byte) ([]byte, error) {
		return grant.Add(path, text, added)
	})
	if err != nil {
		return capability.GrantChange{}, err
	}
	notes, err := s.grantNotes(ctx, added)
	return capability.GrantChange{File: file, Added: 1, Notes: notes}, err
}

// grantNotes says what keeps a grant from giving anything yet: it may be meant, and it may
// be a slip.
func (s *Stem) grantNotes(ctx context.Context, g grant.Grant) ([]string, error) {
	notes := []string{}
	if string(g.Pollen) != string(pollen.Botanist) {
		if _, err := s.state.Pollen(ctx, pollen.Name(g.Pollen)); fault.Is(err, fault.NotFound) {
			notes = append(notes, fmt.Sprintf("no Pollen %s was issued yet: tendril pollen issue %[1]s", g.Pollen))
		} else if err != nil {
			return nil, err
		}
	}
	file, err := s.substrates()
	if err != nil {
		return nil, err
	}
	for _, name := range g.Substrates {
		if _, err := file.Lookup(string(name)); err != nil {
			notes = append(notes, fmt.Sprintf("there is no Substrate %s yet: tendril substrate add %[1]s --path PATH", name))
		}
	}
	if g.Expires != nil && g.Expires.Passed(time.Now()) {
		notes = append(notes, "it has ended already: "+g.Expires.String())
	}
	return notes, nil
}

func (s *Stem) revokeGrant(ctx context.Context, c *call, in capability.GrantRevokeInput) (capability.GrantChange, error) {
	removed := 0
	file, err := s.edit(ctx, c, grant.FileName, "grant.revoked", in.Pollen, func(path string, text []byte) (_ []byte, err error) {
		text, removed, err = grant.Revoke(path, text, in.Pollen, in.Class, in.Substrate)
		if err == nil && removed == 0 {
			err = fault.New(fault.NotFound, "no grant of %s holds that", in.Pollen).WithHint("tendril grant list shows the grants in force")
		}
		return text, err
	})
	return capability.GrantChange{File: file, Removed: removed}, err
}

func (s *Stem) checkGrants(_ context.Context, _ *call, in capability.GrantCheckInput) (capability.GrantCheck, error) {
	if in.Text != nil {
		file, err := grant.Parse(in.File, []byte(*in.Text))
		return capability.GrantCheck{File: in.File, Grants: len(file.Grants)}, err
	}
	file, err := s.grantsFile.Current() // not what stays in force of a broken one
	return capability.GrantCheck{File: s.grantsFile.Path(), Grants: len(file.Grants)}, err
}

// explainGrant asks the decision itself, so it cannot say anything else than what
// would happen.
func (s *Stem) explainGrant(ctx context.Context, _ *call, in capability.GrantExplainInput) (capability.Explanation, error) {
	file, err := s.grants()
	if err != nil {
		return capability.Explanation{}, err
	}
	now := time.Now()
	today, err := s.state.RunsOn(ctx, in.Pollen, now)
	if err != nil {
		return capability.Explanation{}, err
	}
	d := file.Decide(grant.Request{
		Pollen: in.Pollen, Class: in.Class, Substrate: in.Substrate, Provider: in.Provider, Image: in.Image, Limits: in.Limits,
		Defaults: s.defaults(), RunsToday: today, Now: now,
	})
	out := capability.Explanation{Permitted: d.Permitted, Rule: d.Rule, Missing: d.Missing, Reasons: append([]string{}, d.Reasons...)}
	if d.Add != "" {
		out.Missing += "; it could be permitted with: " + d.Add
	}
	return out, s.explainPollen(ctx, in.Pollen, &out)
}

// explainPollen adds what keeps the Pollen itself from asking anything.
func (s *Stem) explainPollen(ctx context.Context, name string, out *capability.Explanation) error {
	parsed, err := pollen.ParseName(name)
	if err != nil {
		return nil // the decision has said so, or it is the Botanist
	}
	record, err := s.state.Pollen(ctx, parsed)
	if fault.Is(err, fault.NotFound) {
		out.Permitted, out.Rule = false, "only a Pollen that was issued may ask"
		out.Missing = name + " was never issued: tendril pollen issue " + name
		return nil
	}
	if err != nil {
		return err
	}
	if refusal := record.Check(time.Now(), record.UID); refusal != nil {
		out.Permitted, out.Rule, out.Missing = false, "only a Pollen that is good may ask", refusal.Error()
	}
	return nil
}

// grantOf is the grant that an input spells, word by word as the file would be read.
func grantOf(in capability.GrantAddInput) (grant.Grant, error) {
	g := grant.Grant{Limits: grant.Limits{Limits: in.Limits}}
	err := first(
		spell("pollen", in.Pollen, &g.Pollen),
		spellAll("substrate", in.Substrates, &g.Substrates),
		spellAll("class", in.Classes, &g.Classes),
		spellAll("provider", in.Providers, &g.Providers),
		spellAll("image", in.Images, &g.Images),
		spellAll("credential", in.Credentials, &g.Credentials),
		spell("provider", in.Provider, &g.Provider),
		spell("runs", in.Runs, &g.Runs),
	)
	for _, host := range in.EgressHosts {
		var rule destination.Rule
		err = first(err, spell("egress", host, &rule.Host))
		g.Egress = append(g.Egress, rule)
	}
	if in.DailyRuns != nil {
		g.Daily.Runs = new(grant.Count(*in.DailyRuns))
		err = first(err, g.Daily.Runs.Validate())
	}
	if in.Expires != "" {
		g.Expires = new(grant.Expiry)
		err = first(err, spell("expires", in.Expires, g.Expires))
	}
	if err != nil {
		return grant.Grant{}, err
	}
	return g, g.Validate()
}

// first is the first of several errors: one is mended at a time.
func first(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// spell reads one word as the file's decoder does. An empty one is not there.
func spell(key, word string, into encoding.TextUnmarshaler) error {
	if word == "" {
		return nil
	}
	err := into.UnmarshalText([]byte(word))
	var f *fault.Error
	if errors.As(err, &f) {
		return fault.New(f.Kind, "%s: %w", key, err).WithHint("%s", f.Hint).WithRule(f.Rule)
	}
	return err
}

func spellAll[T any, P interface {
	*T
	encoding.TextUnmarshaler
}, S ~[]T](key string, words []string, into *S) error {
	for _, word := range words {
		var one T
		if err := spell(key, word, P(&one)); err != nil {
			return err
		}
		*into = append(*into, one)
	}
	return nil
}
