//go:build linux

package terrariumtest

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"
)

// Soak is for a test that kills at some moments: SOAK_KILLS says how often, a few times
// without it, and SOAK_SEED which moments. The test has to say seed when it fails.
func Soak(t *testing.T) (kills int, random *rand.Rand, seed uint64) {
	t.Helper()
	kills, seed = 3, uint64(time.Now().UnixNano())
	for variable, set := range map[string]func(uint64){
		"SOAK_KILLS": func(n uint64) { kills = int(n) },
		"SOAK_SEED":  func(n uint64) { seed = n },
	} {
		text := os.Getenv(variable)
		if text == "" {
			continue
		}
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatalf("%s: %v", variable, err)
		}
		set(n)
	}
	t.Logf("SOAK_SEED=%d", seed)
	return kills, rand.New(rand.NewPCG(seed, 0)), seed
}
