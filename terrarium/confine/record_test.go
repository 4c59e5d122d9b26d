//go:build linux

package confine

import (
	"os"
	"strconv"
	"strings"
	"testing"
)

func TestParseRecord(t *testing.T) {
	if pid, start, ok := parseRecord([]byte("4711 123456\n")); !ok || pid != 4711 || start != "123456" {
		t.Errorf("parsed as %d %q %v", pid, start, ok)
	}
	for _, text := range []string{"", "\n", "4711", "4711\n", "4711 12345", "1 5\n", "0 5\n", "-1 5\n", "4711 x\n", "4711 -5\n", "x 5\n", "4711 5 6\n", "4711 5\n\n"} {
		if pid, start, ok := parseRecord([]byte(text)); ok {
			t.Errorf("%q was parsed as %d %q", text, pid, start)
		}
	}
}

func TestStartTimeIsThisProcesss(t *testing.T) {
	dir := t.TempDir()
	if err := Record(dir+"/it", os.Getpid()); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(dir + "/it")
	if err != nil {
		t.Fatal(err)
	}
	pid, start, ok := parseRecord(data)
	if now, err := startTime(os.Getpid()); !ok || err != nil || pid != os.Getpid() || start != now {
		t.Errorf("recorded %q; started at %s (%v)", data, now, err)
	}
	if start, ok := parseStartTime("1 (a) b) c"); ok {
		t.Errorf("a short line was parsed as %q", start)
	}
}

// A file that names somebody else's process harms nobody.
func TestSweepSparesOthers(t *testing.T) {
	dir := t.TempDir()
	text := strconv.Itoa(os.Getpid()) + " 1\n" // this process started later than that
	if err := os.WriteFile(dir+"/it", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := endRecorded(t.Context(), dir+"/it"); err != nil {
		t.Error(err)
	}
}

func FuzzParseRecord(f *testing.F) {
	f.Add([]byte("4711 123456\n"))
	f.Add([]byte("1 1\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if pid, start, ok := parseRecord(data); ok && (pid <= 1 || start == "" || !strings.HasSuffix(string(data), "\n")) {
			t.Errorf("%q was parsed as %d %q", data, pid, start)
		}
	})
}

func FuzzParseStartTime(f *testing.F) {
	f.Add("7 (a) b) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20")
	f.Fuzz(func(t *testing.T, stat string) {
		if start, ok := parseStartTime(stat); ok && (start == "" || strings.ContainsAny(start, " \n")) {
			t.Errorf("%q was parsed as %q", stat, start)
		}
	})
}
