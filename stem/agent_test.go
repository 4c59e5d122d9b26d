//go:build linux

package stem

import (
	"strings"
	"testing"

	"tendril/agents"
)

// A built-in agent that names an address inside names that of its route.
func TestBuiltInAgentsAskWhereTheirRouteIs(t *testing.T) {
	named := 0
	for name, agent := range agents.BuiltIn() {
		for _, word := range agent.Command {
			if _, rest, ok := strings.Cut(word, "http://127."); ok {
				named++
				if address := loopback(modelPorts[agent.Route]); !strings.Contains(word, address+"/v1\"") {
					t.Errorf("%s asks at 127.%s, and its route is at %s", name, rest, address)
				}
			}
		}
	}
	if named == 0 {
		t.Error("no built-in agent names an address")
	}
}
