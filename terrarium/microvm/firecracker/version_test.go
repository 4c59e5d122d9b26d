package firecracker

import (
	"strings"
	"testing"

	"tendril/fault"
)

func TestParseVersion(t *testing.T) {
	for line, want := range map[string]string{
		"Firecracker v1.16.1":       "Firecracker 1.16.1",
		"Firecracker v1.16.1\n":     "Firecracker 1.16.1",
		"Jailer v1.15.1":            "Jailer 1.15.1",
		"Firecracker v1.17.0-dev":   "Firecracker 1.17.0",
		"Firecracker v0.25.0-3-gab": "Firecracker 0.25.0",
	} {
		program, v, ok := ParseVersion(line)
		if got := program + " " + v.String(); !ok || got != want {
			t.Errorf("%q was parsed as %s (%v)", line, got, ok)
		}
	}
	for _, line := range []string{
		"", "Firecracker", "Firecracker 1.16.1", "Firecracker v1.16", "firecracker v1.16.1", "Firecracker v1.16.1 and more",
		"Firecracker v1.16.99999", "Firecracker v-1.0.0", "QEMU emulator version 7.2.22", "Firecracker v1.16.1\nFirecracker v1.0.0",
	} {
		if program, v, ok := ParseVersion(line); ok {
			t.Errorf("%q was parsed as %s %s", line, program, v)
		}
	}
}

func TestVersionsWithAdvisoriesAreRefused(t *testing.T) {
	for text, why := range map[string]string{
		"0.18.0": "CVE-2019-18960", "0.19.0": "CVE-2019-18960", "0.21.1": "CVE-2020-16843", "0.22.0": "CVE-2020-27174",
		"1.7.0": "CVE-2026-1386", "1.13.1": "CVE-2026-1386", "1.14.0": "CVE-2026-1386",
		"1.13.2": "CVE-2026-5747", "1.14.3": "CVE-2026-5747", "1.15.0": "CVE-2026-5747",
	} {
		if err := parsed(t, text).Check(); !fault.Is(err, fault.Unavailable) || !strings.Contains(err.Error(), why) {
			t.Errorf("%s was answered with %v, want %s", text, err, why)
		}
	}
	for _, text := range []string{"1.14.4", "1.15.1", "1.16.0", "1.16.1", "2.0.0"} {
		if err := parsed(t, text).Check(); err != nil {
			t.Errorf("%s was refused: %v", text, err)
		}
	}
}

func parsed(t *testing.T, text string) Version {
	t.Helper()
	_, v, ok := ParseVersion("Firecracker v" + text)
	if !ok {
		t.Fatalf("%s is no version", text)
	}
	return v
}
