package site

import "testing"

func TestMapsAll(t *testing.T) {
	for text, want := range map[string]bool{
		"         0          0 4294967295\n": true,
		"0 100000 65536\n":                   false,
		"0 1000 1\n1 100000 65535\n":         false,
		"0 0 1000\n1000 1000 4294966295\n":   true,
		"":                                   false,
		"0 0\n":                              false,
		"0 0 many\n":                         false,
	} {
		if got := mapsAll(text); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
}
