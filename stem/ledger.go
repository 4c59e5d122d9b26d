//go:build linux

package stem

import (
	"context"

	"tendril/capability"
)

// tailLedger shows the newest rows.
func (s *Stem) tailLedger(ctx context.Context, _ *call, in capability.LedgerPageInput) (capability.LedgerPage, error) {
	return s.ledgerPage(ctx, in)
}

// exportLedger shows the rows from one on. Whoever wants all of them asks again from
// where a page ends.
func (s *Stem) exportLedger(ctx context.Context, _ *call, in capability.LedgerPageInput) (capability.LedgerPage, error) {
	if in.From == nil {
		in.From = new(int64(0))
	}
	return s.ledgerPage(ctx, in)
}

func (s *Stem) ledgerPage(ctx context.Context, in capability.LedgerPageInput) (capability.LedgerPage, error) {
	limit := in.Limit
	if limit == 0 {
		limit = capability.DefaultListed
	}
	size, err := s.state.LedgerSize(ctx)
	if err != nil {
		return capability.LedgerPage{}, err
	}
	from := max(0, size-int64(limit))
	if in.From != nil {
		from = *in.From
	}
	lines, err := s.state.LedgerLines(ctx, from, limit)
	page := capability.LedgerPage{Rows: make([]string, len(lines)), Size: size}
	for i, line := range lines {
		page.Rows[i] = string(line)
	}
	return page, err
}

func (s *Stem) checkpointLedger(ctx context.Context, _ *call, _ capability.EmptyInput) (capability.LedgerCheckpoint, error) {
	checkpoint, err := s.state.Checkpoint(ctx)
	return capability.LedgerCheckpoint{Checkpoint: checkpoint, Key: s.state.LedgerKey()}, err
}
