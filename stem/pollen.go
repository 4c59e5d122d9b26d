//go:build linux

package stem

import (
	"context"
	"time"

	"tendril/capability"
	"tendril/pollen"
	"tendril/run"
)

func (s *Stem) issuePollen(ctx context.Context, c *call, in capability.PollenIssueInput) (capability.IssuedPollen, error) {
	name, err := pollen.ParseName(in.Name)
	if err != nil {
		return capability.IssuedPollen{}, err
	}
	ttl := capability.DefaultTTL
	if in.TTL != nil {
		ttl = *in.TTL
	}
	record, token, err := pollen.Issue(name, in.UID, time.Now(), time.Duration(ttl))
	if err != nil {
		return capability.IssuedPollen{}, err
	}
	record, err = s.state.IssuePollen(ctx, record, c.change("pollen.issued", in.Name))
	return capability.IssuedPollen{Pollen: pollenOf(record), Token: token.Reveal()}, err
}

func (s *Stem) listPollens(ctx context.Context, _ *call, _ capability.EmptyInput) ([]capability.Pollen, error) {
	records, err := s.state.Pollens(ctx)
	list := make([]capability.Pollen, len(records))
	for i, record := range records {
		list[i] = pollenOf(record)
	}
	return list, err
}

func (s *Stem) rotatePollen(ctx context.Context, c *call, in capability.PollenInput) (capability.IssuedPollen, error) {
	name, err := pollen.ParseName(in.Name)
	if err != nil {
		return capability.IssuedPollen{}, err
	}
	record, token, err := s.state.RotatePollen(ctx, name, time.Now(), c.change("pollen.rotated", in.Name))
	return capability.IssuedPollen{Pollen: pollenOf(record), Token: token.Reveal()}, err
}

func (s *Stem) revokePollen(ctx context.Context, c *call, in capability.PollenInput) (capability.Pollen, error) {
	name, err := pollen.ParseName(in.Name)
	if err != nil {
		return capability.Pollen{}, err
	}
	record, err := s.state.RevokePollen(ctx, name, time.Now(), c.change("pollen.revoked", in.Name))
	return pollenOf(record), err
}

func pollenOf(r pollen.Record) capability.Pollen {
	p := capability.Pollen{
		Name: string(r.Name), UID: r.UID, Issued: run.At(r.Issued), Expires: run.At(r.Expires),
		Live: r.Revoked == nil && time.Now().Before(r.Expires),
	}
	if r.Rotated != nil {
		p.Rotated = new(run.At(*r.Rotated))
	}
	if r.Revoked != nil {
		p.Revoked = new(run.At(*r.Revoked))
	}
	return p
}
