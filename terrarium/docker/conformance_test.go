//go:build linux

package docker

import (
	"testing"

	"tendril/terrarium"
	"tendril/terrarium/terrariumtest"
)

func TestConformance(t *testing.T) {
	conform(t, runc)
}

func conform(t *testing.T, k kind) {
	p := wall(t, k)
	terrariumtest.Run(t, func(t *testing.T) terrarium.Provider { return p }, terrariumtest.Options{
		Image: terrariumtest.Debian,
		Traces: func(t *testing.T, run string) []string {
			found, err := p.daemon.labelled(t.Context(), map[string]string{labelRun: run})
			if err != nil {
				t.Error(err)
			}
			var ids []string
			for _, c := range found {
				ids = append(ids, c.ID)
			}
			return ids
		},
	})
}

func TestConformanceGVisor(t *testing.T) {
	conform(t, gvisor)
}
