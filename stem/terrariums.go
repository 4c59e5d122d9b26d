//go:build linux

package stem

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"tendril/capability"
	"tendril/erofs"
	"tendril/fault"
	"tendril/probe"
	"tendril/run"
	"tendril/stoma"
	"tendril/terrarium"
)

func (s *Stem) listTerrariums(ctx context.Context, _ *call, _ capability.TerrariumListInput) ([]capability.Terrarium, error) {
	list := []capability.Terrarium{}
	chosen := false
	for _, p := range s.providers {
		can := p.Capabilities()
		t := capability.Terrarium{Provider: p.Name(), Primitive: can.Primitive, Ready: true}
		for field, limit := range limitOf {
			if by := can.Fields[field]; by != "" && by != terrarium.NotKept {
				t.Limits = append(t.Limits, string(limit))
			}
		}
		t.Seals = can.Seals
		if err := p.Ready(ctx); err != nil {
			t.Ready = false
			t.Reason = new(err.Error())
			var f *fault.Error
			if errors.As(err, &f) && f.Hint != "" {
				t.Hint = &f.Hint
			}
		}
		t.Default = t.Ready && !chosen
		chosen = chosen || t.Ready
		list = append(list, t)
	}
	return list, nil
}

// probeTerrarium opens a Terrarium over an empty workspace and runs every probe
// in it as a Sprout would run.
func (s *Stem) probeTerrarium(ctx context.Context, c *call, in capability.ProbeInput) (_ capability.ProbeReport, err error) {
	provider, id := c.provider, run.NewID()
	place, err := claim(s.runs, id)
	if err != nil {
		return capability.ProbeReport{}, err
	}
	defer func() { err = errors.Join(err, place.end()) }()
	image := filepath.Join(place.dir, "empty.erofs")
	if err := writeEmptyImage(image); err != nil {
		return capability.ProbeReport{}, err
	}
	spec := specLimits(c.permit.limits(in.Limits, s.config.Defaults))
	spec.Run = string(id)
	spec.Rootfs.Host = &terrarium.HostView{Dirs: s.config.Toolchain}
	spec.Workspace = terrarium.Workspace{Image: image, Dir: place.dir}
	spec.User = terrarium.DefaultUser
	spec.Env = environment("/usr/local/bin:/usr/bin:/bin", nil, nil)
	box, err := provider.Open(ctx, spec)
	if err != nil {
		return capability.ProbeReport{}, err
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTime)
		defer cancel()
		err = errors.Join(err, box.Close(closing))
	}()
	report := capability.ProbeReport{Provider: provider.Name(), Boundary: recordRows(box.Boundary()), Held: true}
	for _, p := range probe.All() {
		capability.Progress(ctx, "probing "+p.ID, 0, 0)
		result := runProbe(ctx, box.Stoma(), spec.Env, p)
		report.Held = report.Held && (result.Status == probe.Sealed || result.Status == probe.NotApplicable)
		report.Probes = append(report.Probes, capability.ProbeResult{
			Probe: p.ID, Dimension: p.Dimension, Seal: p.Seal, Tries: p.What, Result: string(result.Status), Observed: result.Detail,
		})
	}
	capability.Progress(ctx, "", 0, 0)
	return report, nil
}

// writeEmptyImage makes a base image without an entry.
func writeEmptyImage(path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return fault.New(fault.Unavailable, "making an empty base image: %w", err)
	}
	err = erofs.New(f, erofs.Options{UID: sproutOwner.UID, GID: sproutOwner.GID, Time: time.Now()}).Close()
	if err := errors.Join(err, f.Close()); err != nil {
		return fault.New(fault.Unavailable, "making an empty base image: %w", err)
	}
	return nil
}

// probeTime is more than a probe allows itself.
const probeTime = 30 * time.Second

// runProbe executes one probe as the Sprout. Whatever keeps it from answering is
// unknown, never a pass.
func runProbe(ctx context.Context, inside *stoma.Client, env []string, p probe.Probe) probe.Result {
	unknown := func(err error) probe.Result {
		return probe.Result{ID: p.ID, Status: probe.Unknown, Detail: fmt.Sprintf("no answer: %v", err)}
	}
	process, err := inside.Exec(ctx, stoma.ExecRequest{Argv: []string{terrarium.StomaInside, "probe", p.ID}, Env: env, Dir: "/workspace", Timeout: probeTime})
	if err != nil {
		return unknown(err)
	}
	defer process.Close()
	process.Stdin.Close()
	answer, err := io.ReadAll(io.LimitReader(process.Stdout, 8<<10))
	if err != nil {
		return unknown(err)
	}
	if _, err := process.Wait(ctx); err != nil {
		return unknown(err)
	}
	result, err := probe.Parse(answer)
	if err != nil {
		return unknown(err)
	}
	if result.ID != p.ID {
		return unknown(fmt.Errorf("probe %s answered for %q", p.ID, result.ID))
	}
	return result
}
