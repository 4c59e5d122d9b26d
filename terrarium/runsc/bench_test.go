//go:build linux

package runsc

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"tendril/bench"
	"tendril/terrarium"
	"tendril/terrarium/terrariumtest"
)

// Row 1: open a Terrarium, self-test included, run true, close it; against what a
// person would type for the same bundle.
func BenchmarkRow1OpenTrueClose(b *testing.B) {
	provider := terrarium.Validated(wall(b))
	theirs := baseline(b, "/usr/bin/true")
	spec := terrariumtest.HostSpec(b, "row1")
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

// Row 3: one more command in an open Terrarium, against docker exec.
func BenchmarkRow3Exec(b *testing.B) {
	box := opened(b)
	container := dockerContainer(b)
	bench.Pairs(b, func() error { return terrariumtest.RunTrue(b.Context(), box.Stoma()) },
		func() error { return exec.Command("docker", "exec", container, "/bin/true").Run() })
}

// Row 5: a gibibyte of output through the Stoma, against the pipe of gVisor's own
// runsc. What is held of it on this side is bounded.
func BenchmarkRow5Stream(b *testing.B) {
	box := opened(b)
	theirs := baseline(b, terrariumtest.Zeros...)
	bench.Pairs(b, func() error { return terrariumtest.StreamZeros(b.Context(), box.Stoma()) }, func() error {
		var counted terrariumtest.Counter
		if err := theirs(&counted); err != nil {
			return err
		}
		return counted.ExpectZeros()
	})
}

// BenchmarkIdle: what an open Terrarium holds in which nothing runs.
func BenchmarkIdle(b *testing.B) {
	box := opened(b)
	bench.Idle(b, func() int64 { return box.Usage().Memory })
}

func opened(b *testing.B) terrarium.Terrarium {
	b.Helper()
	box, err := terrarium.Validated(wall(b)).Open(b.Context(), terrariumtest.HostSpec(b, "bench"))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := box.Close(context.Background()); err != nil {
			b.Error(err)
		}
	})
	return box
}

// baseline returns a run of `runsc run` with the root file system, the mounts and
// the settings that a Terrarium has, and the command in place of the Stoma.
func baseline(b *testing.B, argv ...string) func(stdout io.Writer) error {
	b.Helper()
	program := os.Getenv("TENDRIL_BENCH_BASELINE")
	if program == "" {
		b.Skip("TENDRIL_BENCH_BASELINE is not set: run `make bench`")
	}
	print, err := wall(b).draw(terrariumtest.HostSpec(b, "baseline"))
	if err != nil {
		b.Fatal(err)
	}
	print.oci.Process.Args = argv
	print.oci.Process.User = specs.User{UID: terrarium.DefaultUser.UID, GID: terrarium.DefaultUser.GID}
	print.oci.Process.Capabilities = &specs.LinuxCapabilities{}
	if err := print.bundle.write(print.view, print.oci); err != nil {
		b.Fatal(err)
	}
	var flags []string
	for _, name := range slices.Sorted(maps.Keys(print.settings)) {
		flags = append(flags, "--"+name+"="+print.settings[name])
	}
	if err := os.MkdirAll(filepath.Join(print.spec.Workspace.Dir, "gvisor"), 0o700); err != nil {
		b.Fatal(err)
	}
	rounds := 0
	return func(stdout io.Writer) error {
		rounds++
		cmd := exec.Command(program, slices.Concat(flags, []string{"run", "--bundle", print.bundle.dir, fmt.Sprintf("%s-%d", print.spec.Run, rounds)})...)
		var said bytes.Buffer
		cmd.Stdout, cmd.Stderr = stdout, &said
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("%w: %s", err, said.Bytes())
		}
		return nil
	}
}

// dockerContainer starts a container that holds nothing but Debian's static busybox.
func dockerContainer(b *testing.B) string {
	b.Helper()
	if os.Getenv("DOCKER_HOST") == "" {
		b.Skip("DOCKER_HOST is not set: this row needs a Docker daemon to compare with")
	}
	const busybox = "/bin/busybox"
	if _, err := os.Stat(busybox); err != nil {
		b.Skipf("this row needs Debian's busybox-static: %v", err)
	}
	docker := func(stdin io.Reader, args ...string) string {
		cmd := exec.Command("docker", args...)
		cmd.Stdin = stdin
		out, err := cmd.CombinedOutput()
		if err != nil {
			b.Fatalf("docker %v: %v\n%s", args, err, out)
		}
		return string(bytes.TrimSpace(out))
	}
	root := b.TempDir()
	for _, name := range []string{"bin/true", "bin/sleep"} {
		data, err := os.ReadFile(busybox)
		if err != nil {
			b.Fatal(err)
		}
		if err := os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o755); err != nil {
			b.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, name), data, 0o755); err != nil {
			b.Fatal(err)
		}
	}
	archive, err := exec.Command("tar", "-C", root, "-c", ".").Output()
	if err != nil {
		b.Fatal(err)
	}
	image := docker(bytes.NewReader(archive), "import", "-")
	b.Cleanup(func() { docker(nil, "rmi", image) })
	container := docker(nil, "run", "--detach", "--network", "none", image, "/bin/sleep", "86400")
	b.Cleanup(func() { docker(nil, "rm", "--force", container) })
	return container
}
