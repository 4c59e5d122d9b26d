package acceptance_test

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"tendril/bench"
)

// BenchmarkRow8 compares a whole run over a small repository with what a user would
// otherwise do by hand: gVisor's runsc on a bundle that shows the host's /usr.
func BenchmarkRow8GrowTrue(b *testing.B) {
	baseline := os.Getenv("TENDRIL_BENCH_BASELINE")
	if baseline == "" {
		b.Skip("TENDRIL_BENCH_BASELINE is not set: run `make bench`")
	}
	tendril := binary(b)
	dir := b.TempDir()
	repository := filepath.Join(dir, "repo")
	env := append(os.Environ(), "HOME="+dir, "TENDRIL_STATE_DIR="+filepath.Join(dir, "state"), "GIT_CONFIG_GLOBAL=/dev/null")
	run := func(name string, args ...string) error {
		cmd := exec.Command(name, args...)
		cmd.Env = env
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w\n%s", name, err, out)
		}
		return nil
	}
	script := `git init -q -b main "$1"; cd "$1"; echo base >base; git add .; git -c user.name=a -c user.email=a@localhost commit -qm base`
	if err := run("sh", "-ec", script, "sh", repository); err != nil {
		b.Fatal(err)
	}
	bundle := writeBaselineBundle(b, dir)
	state := filepath.Join(dir, "runsc")
	b.Cleanup(func() { // runsc leaves a mount there, if it could make one
		syscall.Unmount(filepath.Join(state, "null-netns"), 0)
	})
	round := 0
	grow := func() error { return run(tendril, "grow", "--substrate", repository, "--", "true") }
	if err := grow(); err != nil { // makes the base image
		b.Fatal(err)
	}
	bench.Pairs(b, grow, func() error {
		round++
		return run(baseline, "--root", state, "--network=none", "--ignore-cgroups", "--directfs=false", "--overlay2=none",
			fmt.Sprintf("--rootless=%v", os.Getuid() != 0), "run", "-bundle", bundle, fmt.Sprintf("row8-%d", round))
	})
}

func writeBaselineBundle(b *testing.B, dir string) string {
	b.Helper()
	bundle := filepath.Join(dir, "bundle")
	for _, d := range []string{"rootfs/usr", "rootfs/proc", "rootfs/dev", "rootfs/tmp"} {
		if err := os.MkdirAll(filepath.Join(bundle, d), 0o755); err != nil {
			b.Fatal(err)
		}
	}
	for _, name := range []string{"bin", "sbin", "lib", "lib64"} {
		if target, err := os.Readlink("/" + name); err == nil {
			if err := os.Symlink(target, filepath.Join(bundle, "rootfs", name)); err != nil {
				b.Fatal(err)
			}
		}
	}
	config, err := json.Marshal(map[string]any{
		"ociVersion": "1.2.0",
		"root":       map[string]any{"path": "rootfs", "readonly": true},
		"process":    map[string]any{"user": map[string]int{"uid": 0, "gid": 0}, "args": []string{"/usr/bin/true"}, "cwd": "/", "noNewPrivileges": true},
		"mounts": []map[string]any{
			{"destination": "/proc", "type": "proc", "source": "proc"},
			{"destination": "/usr", "type": "bind", "source": "/usr", "options": []string{"rbind", "ro"}},
		},
		"linux": map[string]any{"namespaces": []map[string]string{{"type": "pid"}, {"type": "ipc"}, {"type": "uts"}, {"type": "mount"}, {"type": "network"}}},
	})
	if err != nil {
		b.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(bundle, "config.json"), config, 0o600); err != nil {
		b.Fatal(err)
	}
	return bundle
}

// BenchmarkRow6Inside is row 6 from inside a Terrarium: what curl(1) measures of requests
// over the road, against what the same curl measures outside, directly. The two are not in
// turn: one run asks all of its requests, and then the host.
func BenchmarkRow6Inside(b *testing.B) {
	if _, err := exec.LookPath("curl"); err != nil {
		b.Skip("curl is not here")
	}
	g := newGarden(b)
	o := g.goOutside(b)
	g.permit(o, "")
	const requests, connections = 500, 200
	roots := filepath.Join(g.home, "outside.pem")
	ask := func(more string) string {
		url := "https://" + net.JoinHostPort(o.host, o.port) + "/ok/a"
		return fmt.Sprintf(`
{ i=0; while [ $i -lt %[1]d ]; do printf 'url = "%[2]s"\noutput = "/dev/null"\n'; i=$((i+1)); done; } >"$TMPDIR/urls"
curl -sS %[3]s --http1.1 -w 'kept %%{time_total}\n' -K "$TMPDIR/urls"
i=0; while [ $i -lt %[4]d ]; do curl -sS %[3]s --http1.1 -o /dev/null -w 'new %%{time_total}\n' %[2]s; i=$((i+1)); done`, requests, url, more, connections)
	}
	for b.Loop() {
		said := g.succeed("--json", "pass", "--substrate", "handbook", "--", "sh", "-ec", "TMPDIR=/tmp"+ask(""))
		var passed struct {
			Stdout []byte `json:"stdout_b64"`
		}
		if err := json.Unmarshal([]byte(said.stdout), &passed); err != nil {
			b.Fatal(err)
		}
		direct := g.shell(ask("--cacert " + roots))
		for where, out := range map[string]string{"inside": string(passed.Stdout), "direct": direct} {
			report(b, where, out, map[string]int{"kept": requests, "new": connections})
		}
	}
	b.ReportMetric(0, "ns/op")
}

// report reports the quantiles of what curl measured, in milliseconds. The first request of
// those that are kept alive opens the connection and is left out.
func report(b *testing.B, where, out string, want map[string]int) {
	b.Helper()
	times := map[string][]float64{}
	for line := range strings.Lines(out) {
		var kind string
		var seconds float64
		if _, err := fmt.Sscan(line, &kind, &seconds); err != nil {
			b.Fatalf("%q: %v", line, err)
		}
		times[kind] = append(times[kind], seconds*1000)
	}
	for kind, n := range want {
		list := times[kind]
		if len(list) != n {
			b.Fatalf("%s: %d requests of %d", where, len(list), n)
		}
		if kind == "kept" {
			list = list[1:]
		}
		slices.Sort(list)
		b.ReportMetric(list[len(list)/2], where+"-"+kind+"-p50-ms")
		b.ReportMetric(list[len(list)*99/100], where+"-"+kind+"-p99-ms")
	}
}
