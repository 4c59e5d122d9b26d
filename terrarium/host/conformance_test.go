//go:build linux

package host

import (
	"testing"

	"tendril/stoma/binary"
	"tendril/terrarium"
	"tendril/terrarium/terrariumtest"
)

func TestConformance(t *testing.T) {
	terrariumtest.Run(t, func(t *testing.T) terrarium.Provider { return allowed(t) }, terrariumtest.Options{})
}

func TestAsOrdinaryUser(t *testing.T) {
	terrariumtest.SkipTested(t, terrariumtest.OrdinaryUser)
	terrariumtest.AsOrdinaryUser(t, nil, "TestConformance")
}

// allowed is the provider where somebody allowed it.
func allowed(t *testing.T) *provider {
	t.Helper()
	guest, err := binary.Stoma.Install(t.TempDir())
	if err != nil {
		t.Skipf("%v", err)
	}
	return &provider{Config{Stoma: guest, Allowed: true}}
}
