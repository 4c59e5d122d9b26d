//go:build race

package proxy

// underRace is whether the race detector slows everything down.
const underRace = true
