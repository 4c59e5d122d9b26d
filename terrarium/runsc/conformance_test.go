//go:build linux

package runsc

import (
	"testing"

	"tendril/terrarium"
	"tendril/terrarium/terrariumtest"
)

func TestConformance(t *testing.T) {
	terrariumtest.Run(t, func(t *testing.T) terrarium.Provider { return wall(t) }, terrariumtest.Options{Image: terrariumtest.Debian})
}
