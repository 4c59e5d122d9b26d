//go:build linux

package stem

import (
	"bytes"
	"context"
	"fmt"

	"tendril/capability"
	"tendril/run"
)

// defaultPassed bounds the output of a pass that asks for no bound.
const defaultPassed = capability.Bytes(1 << 20)

// pass runs one command as a run of its own, and returns what it printed. Nothing of
// the workspace is collected.
func (s *Stem) pass(ctx context.Context, c *call, in capability.PassInput) (capability.Pass, error) {
	if in.Limits.Output == nil {
		in.Limits.Output = new(defaultPassed)
	}
	record, err := s.live(ctx, c, in.Work, (*growth).passThrough)
	if err != nil {
		return capability.Pass{Run: record}, err
	}
	stdout, stderr, err := s.outputOf(context.WithoutCancel(ctx), record.ID)
	return capability.Pass{Run: record, Stdout: stdout, Stderr: stderr}, err
}

// passThrough goes from the base to the end of the command.
func (g *growth) passThrough(ctx context.Context) error {
	if err := g.open(ctx); err != nil {
		return err
	}
	g.completed = run.Passed
	return g.work(ctx)
}

// outputOf reads back what was recorded of a run's output, which the run's output
// limit bounds.
func (s *Stem) outputOf(ctx context.Context, id run.ID) (stdout, stderr []byte, err error) {
	var out, errs bytes.Buffer
	for after := int64(0); ; {
		events, err := s.state.Events(ctx, id, after, eventPage)
		if err != nil {
			return nil, nil, fmt.Errorf("reading the output back: %w", err)
		}
		for _, e := range events {
			after = e.ID
			if chunk, is := e.Data.(run.OutputChunk); is && chunk.FD == 2 {
				errs.Write(chunk.Bytes)
			} else if is {
				out.Write(chunk.Bytes)
			}
		}
		if len(events) == 0 {
			return out.Bytes(), errs.Bytes(), nil
		}
	}
}
