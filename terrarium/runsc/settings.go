//go:build linux

package runsc

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"tendril/fault"
	"tendril/terrarium/confine"
)

// settings is every flag of gVisor that the boundary rests on, spelled out even
// where it is upstream's default today. state is a directory of this sandbox alone.
func settings(state string) map[string]string {
	return map[string]string{
		"root":                    state,
		"platform":                "systrap",
		"network":                 "none",
		"gofer-network-namespace": "new",
		"net-raw":                 "false",
		"host-uds":                "none",
		"host-fifo":               "none",
		"character-device-policy": "emulated-only",
		"overlay2":                "none",
		"allow-suid":              "false",
		"allow-flag-override":     "false",
		"debug":                   "false",
		"profile":                 "false",
		"host-settings":           "ignore", // advice about the host's tuning, on every start
		"ignore-cgroups":          "true",   // the keeper is in the run's cgroup already
		"in-sandbox-cgroup":       "v2",     // the Stoma counts and kills by it
		"file-access":             "exclusive",
		"file-access-mounts":      "exclusive",
		"rootless":                fmt.Sprint(confine.Rootless()),
		// As root, direct access would leave the sentry host uid 0 with file
		// capabilities; for an ordinary user it is the other way round: without
		// it the sentry keeps CAP_SYS_ADMIN in its user namespace.
		"directfs": fmt.Sprint(confine.Rootless()),
	}
}

// sealing are the settings that a running sentry must show on its command line with
// exactly the value above.
var sealing = []string{
	"network", "host-uds", "host-fifo", "net-raw", "allow-suid", "allow-flag-override", "debug", "profile",
	"overlay2", "character-device-policy", "directfs", "rootless", "platform",
}

// readBackSettings refuses a sentry that was started with other settings than the
// boundary rests on.
func readBackSettings(sentryPID int) error {
	cmdline, err := os.ReadFile("/proc/" + strconv.Itoa(sentryPID) + "/cmdline")
	if err != nil {
		return fault.New(fault.BrokenBoundary, "reading back the sentry's settings: %w", err)
	}
	return compareSettings(bytes.Split(cmdline, []byte{0}))
}

func compareSettings(args [][]byte) error {
	boot := slices.IndexFunc(args, func(arg []byte) bool { return string(arg) == "boot" })
	if boot < 0 {
		return fault.New(fault.BrokenBoundary, "the wall's sentry was not started as one")
	}
	applied := map[string]string{}
	for _, arg := range args[:boot] {
		if name, value, ok := strings.Cut(strings.TrimLeft(string(arg), "-"), "="); ok {
			applied[name] = value
		}
	}
	want := settings("")
	for _, name := range sealing {
		if applied[name] != want[name] {
			return fault.New(fault.BrokenBoundary, "the wall's sentry runs with %s=%q instead of %q", name, applied[name], want[name]).
				WithRule("the wall's own settings are read back")
		}
	}
	return nil
}

// readBackEnvironment refuses a process of the wall that inherited a variable.
func readBackEnvironment(role string, pid int) error {
	environ, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	if err != nil {
		return fault.New(fault.BrokenBoundary, "reading back the %s's environment: %w", role, err)
	}
	return compareEnvironment(role, environ)
}

// gVisor's variable for its own start.
const startVariable = "RUNSC_START_TIME_NANOS"

func compareEnvironment(role string, environ []byte) error {
	for variable := range bytes.SplitSeq(bytes.TrimRight(environ, "\x00"), []byte{0}) {
		if name, _, _ := strings.Cut(string(variable), "="); name != "" && name != startVariable {
			return fault.New(fault.BrokenBoundary, "the wall's %s has the variable %q in its environment", role, name).
				WithRule("nothing is inherited")
		}
	}
	return nil
}
