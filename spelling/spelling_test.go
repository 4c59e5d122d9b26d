package spelling

import "testing"

func TestNearest(t *testing.T) {
	known := []string{"toolchain", "limits", "cpus", "pids", "version"}
	for _, test := range []struct{ word, want string }{
		{"toolchian", "toolchain"},
		{"toolchain", "toolchain"},
		{"tool-chain", "toolchain"},
		{"limit", "limits"},
		{"cpu", "cpus"},
		{"CPUS", "cpus"},
		{"versoin", "version"},
		{"", ""},
		{"grants", ""},
		{"memory", ""},
	} {
		got, ok := Nearest(test.word, known)
		if got != test.want || ok != (test.want != "") {
			t.Errorf("Nearest(%q) = %q, %v; want %q", test.word, got, ok, test.want)
		}
	}
}

func TestNearestPrefersTheClosest(t *testing.T) {
	if got, _ := Nearest("wal", []string{"wmll", "wall"}); got != "wall" {
		t.Errorf("got %q, want wall", got)
	}
}

func TestNearestBoundsItsWork(t *testing.T) {
	if got, ok := Nearest(string(make([]byte, 1<<20)), []string{"a"}); ok {
		t.Errorf("a megabyte resembles %q", got)
	}
}
