//go:build linux

package docker

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"tendril/bench"
	"tendril/terrarium"
	"tendril/terrarium/terrariumtest"
)

// Row 2: open a Terrarium, self-test included, run true, close it; against docker run with
// the same flags.
func BenchmarkRow2OpenTrueClose(b *testing.B) { eachKind(b, benchmarkOpen) }

// Row 3: one more command in an open Terrarium, against docker exec in the same container.
func BenchmarkRow3Exec(b *testing.B) {
	eachKind(b, func(b *testing.B, p *provider) {
		box, id := opened(b, p)
		bench.Pairs(b, func() error { return terrariumtest.RunTrue(b.Context(), box.Stoma()) },
			func() error { return p.cli("exec", id, "/usr/bin/true").Run() })
	})
}

// Row 5: a gibibyte of output through the Stoma, against docker run.
func BenchmarkRow5Stream(b *testing.B) {
	eachKind(b, func(b *testing.B, p *provider) {
		box, _ := opened(b, p)
		theirs := p.dockerRun(b, terrariumtest.Zeros...)
		bench.Pairs(b, func() error { return terrariumtest.StreamZeros(b.Context(), box.Stoma()) }, func() error {
			var counted terrariumtest.Counter
			if err := theirs(&counted); err != nil {
				return err
			}
			return counted.ExpectZeros()
		})
	})
}

func eachKind(b *testing.B, run func(b *testing.B, p *provider)) {
	if _, err := exec.LookPath("docker"); err != nil {
		b.Skip("there is no docker to compare with: apt-get install docker.io")
	}
	for _, k := range []kind{runc, gvisor} {
		b.Run(k.name, func(b *testing.B) { run(b, wall(b, k)) })
	}
}

// BenchmarkIdle: what an open Terrarium holds in which nothing runs; what the daemon itself
// needs for it is not counted.
func BenchmarkIdle(b *testing.B) {
	eachKind(b, func(b *testing.B, p *provider) {
		box, _ := opened(b, p)
		bench.Idle(b, func() int64 { return box.Usage().Memory })
	})
}

func benchmarkOpen(b *testing.B, p *provider) {
	provider := terrarium.Validated(p)
	theirs := p.dockerRun(b, "/usr/bin/true")
	spec := terrariumtest.HostSpec(b, "row2")
	name, rounds := spec.Run, 0
	bench.Pairs(b, func() error {
		rounds++
		spec.Run = fmt.Sprintf("%s-%d", name, rounds)
		box, err := provider.Open(b.Context(), spec)
		if err != nil {
			return err
		}
		if err := terrariumtest.RunTrue(b.Context(), box.Stoma()); err != nil {
			return err
		}
		return box.Close(b.Context())
	}, func() error { return theirs(io.Discard) })
}

func opened(b *testing.B, p *provider) (terrarium.Terrarium, string) {
	b.Helper()
	spec := terrariumtest.HostSpec(b, "bench")
	box, err := terrarium.Validated(p).Open(b.Context(), spec)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := box.Close(context.Background()); err != nil {
			b.Error(err)
		}
	})
	found, err := p.find(b.Context(), spec.Run)
	if err != nil || len(found) != 1 {
		b.Fatalf("found %q (%v)", found, err)
	}
	return box, found[0]
}

func (p *provider) cli(args ...string) *exec.Cmd {
	return exec.Command("docker", append([]string{"--host", p.Host}, args...)...)
}

// dockerRun is what a person would type for the same container, with the command in place
// of the Stoma.
func (p *provider) dockerRun(b *testing.B, argv ...string) func(stdout io.Writer) error {
	b.Helper()
	print, err := p.blueprint(b.Context(), terrariumtest.HostSpec(b, "baseline"))
	if err != nil {
		b.Fatal(err)
	}
	if err := writeFiles(print); err != nil {
		b.Fatal(err)
	}
	if err := p.bring(b.Context(), print.image); err != nil {
		b.Fatal(err)
	}
	allowed, err := filter()
	if err != nil {
		b.Fatal(err)
	}
	profile := filepath.Join(b.TempDir(), "seccomp.json")
	if err := os.WriteFile(profile, []byte(allowed), 0o600); err != nil {
		b.Fatal(err)
	}
	h := print.host
	args := []string{"run", "--rm", "--network", "none", "--ipc", "private", "--cgroupns", "private", "--cap-drop", "ALL", "--read-only", "--log-driver", "none",
		"--security-opt", "no-new-privileges:true", "--security-opt", "seccomp=" + profile, "--runtime", h.Runtime, "--shm-size", fmt.Sprint(h.ShmSize),
		"--memory", fmt.Sprint(h.Memory), "--memory-swap", fmt.Sprint(h.MemorySwap), "--pids-limit", fmt.Sprint(*h.PidsLimit), "--no-healthcheck",
		"--user", terrarium.DefaultUser.String(), "--hostname", print.config.Hostname, "--init=false"}
	for _, u := range h.Ulimits {
		args = append(args, "--ulimit", u.String())
	}
	for _, target := range slices.Sorted(maps.Keys(h.Tmpfs)) {
		args = append(args, "--tmpfs", target+":"+h.Tmpfs[target])
	}
	for _, m := range h.Mounts {
		args = append(args, "--mount", fmt.Sprintf("type=bind,source=%s,target=%s,readonly,bind-propagation=rprivate,bind-nonrecursive", m.Source, m.Target))
	}
	args = append(append(args, "--entrypoint", argv[0], print.image.name), argv[1:]...)
	return func(stdout io.Writer) error {
		cmd := p.cli(args...)
		var said strings.Builder
		cmd.Stdout, cmd.Stderr = stdout, &said
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("%w: %s", err, said.String())
		}
		return nil
	}
}
