package terrarium

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"tendril/fault"
	"tendril/probe"
	"tendril/stoma"
)

// selfTestTime bounds the look from inside.
const selfTestTime = time.Minute

// ProbeEnv is the environment in which probes are started inside. It is fixed, whatever
// the Sprout's will be: they look for variables that nobody declared. It tells them what
// they cannot know: the account that was applied, whose files the root has, and which start
// of a kernel the host's is.
func ProbeEnv(spec Spec, rows []Row) []string {
	env := []string{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=/home/sprout", "TMPDIR=/tmp", probe.ExpectedUser + "=" + appliedUser(rows)}
	if spec.Rootfs.Image != nil {
		env = append(env, probe.ImageRoot+"=1")
	}
	if id, err := os.ReadFile("/proc/sys/kernel/random/boot_id"); err == nil {
		env = append(env, probe.HostBoot+"="+probe.BootDigest(id))
	}
	return env
}

// selfTest tries the seals that the provider declares from inside, as the Sprout
// would, before anything of the Sprout runs. One that leaks, or of which it cannot
// be told, refuses the Terrarium: what a boundary is called says nothing about what
// it is. The User's row has to be UID:GID of the account that is met inside.
func selfTest(ctx context.Context, provider string, can Capabilities, spec Spec, opened Terrarium) error {
	if len(can.Seals) == 0 {
		return nil
	}
	callers := ctx
	ctx, cancel := context.WithTimeoutCause(ctx, selfTestTime, errors.New("the self-test took too long"))
	defer cancel()
	argv := []string{StomaInside, "probe"}
	expected := map[string]probe.Probe{}
	unproven := map[string]bool{} // seals that no probe saw holding yet
	for _, seal := range can.Seals {
		if seal != probe.RootReadonly || !spec.WritableRoot { // which was asked for
			unproven[seal] = true
		}
	}
	for _, p := range probe.All() {
		if p.Core && unproven[p.Seal] {
			argv = append(argv, p.ID)
			expected[p.ID] = p
		}
	}
	process, err := opened.Stoma().Exec(ctx, stoma.ExecRequest{Argv: argv, Env: ProbeEnv(spec, opened.Boundary()), Dir: "/workspace", Timeout: selfTestTime})
	if err != nil {
		return failedTest(callers, err)
	}
	defer process.Close()
	process.Stdin.Close()
	lines := bufio.NewScanner(process.Stdout)
	var broken []string
	for lines.Scan() {
		result, err := probe.Parse(lines.Bytes())
		if err != nil {
			return fault.New(fault.BrokenBoundary, "testing the boundary from inside: %w", err)
		}
		p, asked := expected[result.ID]
		if !asked {
			return fault.New(fault.BrokenBoundary, "testing the boundary from inside: an answer to the probe %s, which was not asked", result.ID)
		}
		delete(expected, result.ID)
		if result.Status == probe.Sealed {
			delete(unproven, p.Seal)
		}
		if result.Status != probe.Sealed && result.Status != probe.NotApplicable {
			broken = append(broken, fmt.Sprintf("%s (seal %s): %s: %s", p.ID, p.Seal, result.Status, result.Detail))
		}
	}
	if err := errors.Join(lines.Err(), context.Cause(ctx)); err != nil {
		return failedTest(callers, err)
	}
	if len(expected) > 0 {
		return fault.New(fault.BrokenBoundary, "testing the boundary from inside: %d probes did not answer", len(expected))
	}
	for seal := range unproven {
		broken = append(broken, fmt.Sprintf("no probe saw the seal %s hold", seal))
	}
	if len(broken) > 0 {
		return fault.New(fault.BrokenBoundary, "the provider %s does not seal what it declares: %s", provider, strings.Join(broken, "; ")).
			WithRule("a seal that cannot be applied refuses to start")
	}
	return nil
}

// failedTest tells a caller that gave up from a boundary that could not be tested.
func failedTest(callers context.Context, err error) error {
	if callers.Err() != nil {
		return fmt.Errorf("testing the boundary from inside: %w", context.Cause(callers))
	}
	return fault.New(fault.BrokenBoundary, "testing the boundary from inside: %w", err)
}

func appliedUser(rows []Row) string {
	for _, row := range rows {
		if row.Field == "User" {
			return row.Applied
		}
	}
	return ""
}
