//go:build linux

package cgroup

import "testing"

func TestParseStat(t *testing.T) {
	// Field 14 to 17 are the times, field 20 the threads; the name may hold anything.
	ticks, threads, err := parseStat("7 (a) S) 9 x) S 1 2 3 4 5 6 7 8 9 10 100 20 3 4 20 0 5 0 99 0 0\n")
	if err != nil || ticks != 127 || threads != 5 {
		t.Errorf("%d ticks, %d threads (%v)", ticks, threads, err)
	}
	for _, bad := range []string{"", "7 (a", "7 (a) S 1", "7 (a) S 1 2 3 4 5 6 7 8 9 10 x 20 3 4 20 0 5 0 99"} {
		if _, _, err := parseStat(bad); err == nil {
			t.Errorf("%q was read", bad)
		}
	}
}

func FuzzParseProc(f *testing.F) {
	f.Add("7 (a) S 1 2 3 4 5 6 7 8 9 10 100 20 3 4 20 0 5 0 99 0 0\n")
	f.Add("Name:\tx\nRssAnon:\t    1234 kB\n")
	f.Add("12 34 56")
	f.Fuzz(func(t *testing.T, data string) {
		_, _, _ = parseStat(data)
		if n, ok := parseRss(data, "RssAnon:"); ok && n < 0 {
			t.Errorf("memory %d", n)
		}
		for _, pid := range parseChildren(data) {
			if pid <= 0 {
				t.Errorf("child %d", pid)
			}
		}
	})
}
