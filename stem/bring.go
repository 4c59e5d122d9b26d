//go:build linux

package stem

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"

	"tendril/capability"
	"tendril/fault"
	"tendril/ledger"
	"tendril/run"
)

// bring fetches the files that a request wants in its workspace before the work starts,
// and puts them in through the Stoma. Which bytes came is in the ledger and in the run's
// events.
func (g *growth) bring(ctx context.Context) error {
	for _, wanted := range g.plan.work.Fetch {
		if g.reach == nil {
			return g.plan.call.deny(fault.New(fault.Denied, "its grant has no egress rules").
				WithRule("an empty list of destinations denies all").WithHint("the Botanist can add an egress rule to the grant"))
		}
		capability.Progress(ctx, "fetching "+wanted.Path, 0, 0)
		fetched, err := g.reach.fetch(ctx, wanted.URL, wanted.Digest, capability.MostFetched)
		if err != nil {
			return err
		}
		change := g.plan.call.change("file.fetched", wanted.Path)
		change.Run, change.Digests = string(g.id), map[string]string{"file": fetched.Digest}
		if err := g.put(ctx, wanted.Path, fetched.Content, change); err != nil {
			return err
		}
	}
	return nil
}

// put puts one file into the workspace.
func (g *growth) put(ctx context.Context, path string, content []byte, change ledger.Entry) error {
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: path, Mode: 0o644, Size: int64(len(content))}); err != nil {
		return fault.New(fault.Invalid, "%q cannot be the path of a file: %w", path, err)
	}
	if _, err := w.Write(content); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	if _, err := g.stem.state.Record(context.WithoutCancel(ctx), change); err != nil {
		return err
	}
	if err := g.terrarium.Stoma().Put(ctx, "", &archive); err != nil {
		return fmt.Errorf("putting %s into the workspace: %w", path, err)
	}
	return g.events.append(ctx, run.Event{Data: run.Warning{Detail: fmt.Sprintf("%s was fetched: %d bytes, %s", path, len(content), change.Digests["file"])}})
}
