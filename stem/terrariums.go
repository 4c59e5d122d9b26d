//go:build linux

package stem

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
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
		t := describe(p.Name(), can)
		t.Ready = true
		if err := p.Ready(ctx); err != nil {
			t.Ready = false
			t.Reason = new(err.Error())
			var f *fault.Error
			if errors.As(err, &f) && f.Hint != "" {
				t.Hint = &f.Hint
			}
		}
		t.Default = t.Ready && !t.OnlyNamed && !chosen
		chosen = chosen || t.Default
		list = append(list, t)
	}
	return list, nil
}

// describe is what a wall can do on any host that it is ready on.
func describe(name string, can terrarium.Capabilities) capability.Terrarium {
	t := capability.Terrarium{
		Provider: name, Primitive: can.Primitive, OnlyNamed: can.OnlyNamed,
		Runtime: can.Runtime, SharedKernel: can.SharedKernel, Seals: can.Seals,
		Roots: []string{}, Limits: []string{}, Unsealed: []string{},
	}
	if can.Keeps("Rootfs.Host.Dirs") {
		t.Roots = append(t.Roots, "toolchain")
	}
	if can.Keeps("Rootfs.Image.Path") {
		t.Roots = append(t.Roots, "image")
	}
	for _, field := range terrarium.Fields() {
		t.Keeps = append(t.Keeps, capability.Kept{Field: field, By: string(cmp.Or(can.Fields[field], terrarium.NotKept))})
		if limit, is := limitOf[field]; is && can.Keeps(field) {
			t.Limits = append(t.Limits, string(limit))
		}
	}
	for _, p := range probe.All() {
		if !slices.Contains(can.Seals, p.Seal) && !slices.Contains(t.Unsealed, p.Seal) {
			t.Unsealed = append(t.Unsealed, p.Seal)
		}
	}
	return t
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
	root, release, err := s.probedRoot(ctx, in, provider.Capabilities(), place.dir)
	if err != nil {
		return capability.ProbeReport{}, err
	}
	defer release()
	spec.Rootfs = root
	spec.Workspace = terrarium.Workspace{Image: image, Dir: place.dir}
	if provider.Capabilities().Keeps("User") {
		spec.User = terrarium.DefaultUser
	}
	spec.Env = environment([]string{defaultPath}, nil)
	if err := place.builds(provider.Name()); err != nil {
		return capability.ProbeReport{}, err
	}
	box, err := provider.Open(ctx, spec)
	if err != nil {
		return capability.ProbeReport{}, errors.Join(err, place.sweep(ctx, provider))
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTime)
		defer cancel()
		err = errors.Join(err, place.close(closing, box))
	}()
	report := capability.ProbeReport{Provider: provider.Name(), Boundary: recordRows(box.Boundary()), Held: true}
	for _, p := range probe.All() {
		capability.Progress(ctx, "probing "+p.ID, 0, 0)
		result := runProbe(ctx, box.Stoma(), terrarium.ProbeEnv(spec, box.Boundary()), p)
		verdict := string(result.Status)
		switch declared := slices.Contains(provider.Capabilities().Seals, p.Seal); {
		case result.Status == probe.Sealed || result.Status == probe.NotApplicable:
		case !declared && result.Status == probe.Leak:
			verdict = capability.ProbeOpen
		default:
			report.Held = false
		}
		report.Probes = append(report.Probes, capability.ProbeResult{
			Probe: p.ID, Dimension: p.Dimension, Seal: p.Seal, Tries: p.What, Result: verdict, Observed: result.Detail,
		})
	}
	capability.Progress(ctx, "", 0, 0)
	return report, nil
}

// defaultPath is where programs are looked for in a root file system that says nothing of it.
const defaultPath = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

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

// probeGrace is how much longer than it allows itself a probe may take to answer.
const probeGrace = 10 * time.Second

// runProbe executes one probe as the Sprout. Whatever keeps it from answering is
// unknown, never a pass.
func runProbe(ctx context.Context, inside *stoma.Client, env []string, p probe.Probe) probe.Result {
	unknown := func(err error) probe.Result {
		return probe.Result{ID: p.ID, Status: probe.Unknown, Detail: fmt.Sprintf("no answer: %v", err)}
	}
	process, err := inside.Exec(ctx, stoma.ExecRequest{Argv: []string{terrarium.StomaInside, "probe", p.ID}, Env: env, Dir: "/workspace", Timeout: p.Deadline() + probeGrace})
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
