//go:build linux

package terrariumtest

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"tendril/probe"
	"tendril/terrarium"
)

// absent is a provider that declares what it is told and opens nothing.
type absent struct{ can terrarium.Capabilities }

func (absent) Name() string                                { return "absent" }
func (a absent) Capabilities() terrarium.Capabilities      { return a.can }
func (absent) Ready(context.Context) error                 { return nil }
func (absent) Sweep(context.Context, string, string) error { return nil }

func (absent) Open(context.Context, terrarium.Spec) (terrarium.Terrarium, error) {
	panic("a Spec got through that this provider does not honour")
}

// nothing declares every field as not kept but those.
func nothing(kept ...string) terrarium.Capabilities {
	can := terrarium.Capabilities{Fields: map[string]terrarium.Enforcement{}}
	for _, field := range terrarium.Fields() {
		can.Fields[field] = terrarium.NotKept
		if slices.Contains(kept, field) {
			can.Fields[field] = terrarium.ByHost
		}
	}
	return can
}

// TestEveryFieldCanBeAskedFor: the suite knows a value for each field with which nothing
// but that field is refused, over a view and over an image.
func TestEveryFieldCanBeAskedFor(t *testing.T) {
	host := terrarium.Rootfs{Host: &terrarium.HostView{}}
	image := terrarium.Rootfs{Image: &terrarium.Image{Path: "/x", Digest: "sha256:x"}}
	for name, base := range map[string]struct {
		root terrarium.Rootfs
		kept []string
	}{
		"host":  {host, []string{"Run", "Env", "Rootfs.Host.Dirs", "Workspace.Image", "Workspace.Dir"}},
		"image": {image, []string{"Run", "Env", "Rootfs.Image.Path", "Rootfs.Image.Digest", "Workspace.Image", "Workspace.Dir"}},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGround(absent{nothing(base.kept...)}, Options{})
			g.root = base.root
			for _, field := range terrarium.Fields() {
				if !g.keeps(field) {
					testRefused(t, g, field)
				}
			}
		})
	}
}

// TestWhatIsDeclaredIsNotSkipped: a field or a seal counts as left out exactly when the
// property that proves it was skipped.
func TestWhatIsDeclaredIsNotSkipped(t *testing.T) {
	for _, field := range terrarium.Fields() {
		for _, p := range properties() {
			out := leftOut(nothing(field), []string{p.name})
			if left := len(out) > 0; left != (provenBy[field] == p.name) {
				t.Errorf("with %s skipped, of %s is left out: %q", p.name, field, out)
			}
		}
	}
	stressed := map[string]bool{}
	for _, p := range probe.All() {
		stressed[p.Seal] = stressed[p.Seal] || p.Stress
	}
	for seal, stress := range stressed {
		for _, p := range properties() {
			out := leftOut(terrarium.Capabilities{Seals: []string{seal}}, []string{p.name})
			want := p.name == "seals" || p.name == "stress" && stress
			if (len(out) > 0) != want || want && !strings.Contains(out[0], seal) {
				t.Errorf("with %s skipped, of the seal %s is left out: %q", p.name, seal, out)
			}
		}
	}
}

// TestTracesByTheNamesOfADaemon: what a daemon called a run is a trace as long as it knows
// it, and marks what carries that name afterwards.
func TestTracesByTheNamesOfADaemon(t *testing.T) {
	known := []string{"4c2f0e"}
	g := newGround(absent{}, Options{Traces: func(*testing.T, string) []string { return known }})
	spec := terrarium.Spec{Run: "no-such-run-at-all", Workspace: terrarium.Workspace{Dir: t.TempDir()}}
	if tr := g.tracesOf(t, spec); !slices.Equal(tr.named, known) {
		t.Errorf("found %s", tr)
	}
	t.Setenv("TMPDIR", t.TempDir())
	if known = nil; !g.tracesOf(t, spec).none() {
		t.Errorf("found %s", g.tracesOf(t, spec))
	}
	if err := os.Mkdir(filepath.Join(os.TempDir(), "layer-4c2f0e"), 0o700); err != nil {
		t.Fatal(err)
	}
	if tr := g.tracesOf(t, spec); len(tr.files) != 1 || !strings.HasSuffix(tr.files[0], "layer-4c2f0e") {
		t.Errorf("found %s", tr)
	}
}
