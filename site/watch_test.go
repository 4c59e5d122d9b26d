//go:build linux

package site

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"tendril/fault"
)

// watched is a file of one line, in a configuration directory of its own; a line that begins with
// a ! is broken.
type watched struct {
	*Watched[string]
	t      *testing.T
	dirs   Dirs
	file   string
	parsed int
}

func watch(t *testing.T) *watched {
	w := &watched{t: t, dirs: dirsIn(t, own(t))}
	if err := os.MkdirAll(w.dirs.Config, 0o700); err != nil {
		t.Fatal(err)
	}
	w.file = filepath.Join(w.dirs.Config, "line")
	w.Watched = Watch(w.dirs, "line", func(file string, data []byte) (string, error) {
		w.parsed++
		if bytes.HasPrefix(data, []byte("!")) {
			return "half", fault.New(fault.Invalid, "%s:1: broken %s", file, data)
		}
		return string(data), nil
	})
	return w
}

func (w *watched) write(content string) {
	w.t.Helper()
	if err := os.WriteFile(w.file, []byte(content), 0o600); err != nil {
		w.t.Fatal(err)
	}
}

// holds checks what is in force, and the problem that is reported beside it, twice.
func (w *watched) holds(value, problem string) {
	w.t.Helper()
	for range 2 {
		got, err := w.Current()
		text := ""
		if err != nil {
			text = strings.ReplaceAll(err.Error(), w.file, "FILE")
		}
		if got != value || text != problem {
			w.t.Errorf("got %q, %q; want %q, %q", got, text, value, problem)
		}
	}
}

func TestWatched(t *testing.T) {
	w := watch(t)
	w.holds("", "")
	w.write("!1")
	w.holds("", "FILE:1: broken !1")
	w.write("one")
	w.holds("one", "")
	w.write("two")
	w.holds("two", "")
	w.write("!3")
	w.holds("two", "FILE:1: broken !3")
	w.write("!4")
	w.holds("two", "FILE:1: broken !4")
	w.write("five")
	w.holds("five", "")
	if err := os.Remove(w.file); err != nil {
		t.Fatal(err)
	}
	w.holds("", "")
	w.write("!6")
	w.holds("", "FILE:1: broken !6")
	w.write("seven")
	w.holds("seven", "")
	if err := os.RemoveAll(w.dirs.Config); err != nil {
		t.Fatal(err)
	}
	w.holds("", "")
}

// TestWatchedReadsNothingTwice: what did not change is not decoded again.
func TestWatchedReadsNothingTwice(t *testing.T) {
	w := watch(t)
	w.write("one")
	for range 100 {
		w.holds("one", "")
	}
	if w.parsed != 1 {
		t.Errorf("the file was decoded %d times", w.parsed)
	}
}

// TestWatchedSeesWhatTheClockDoesNot: a change of the same size within one step of the file
// system's clock, and with the time of modification put back.
func TestWatchedSeesWhatTheClockDoesNot(t *testing.T) {
	w := watch(t)
	past := time.Now().Add(-time.Hour)
	for i := range 300 {
		content := fmt.Sprintf("%03d", i)
		w.write(content)
		if err := os.Chtimes(w.file, past, past); err != nil {
			t.Fatal(err)
		}
		if got, err := w.Current(); got != content || err != nil {
			t.Fatalf("got %q, %v; want %q", got, err, content)
		}
	}
}

func TestAVersionIsSettledOnceTheClockHasMovedOn(t *testing.T) {
	changed := time.Unix(1_800_000_000, 0)
	v := version{ctime: unix.NsecToTimespec(changed.UnixNano())}
	for later, want := range map[time.Duration]bool{-time.Hour: false, 0: false, 20 * time.Millisecond: false, time.Second: false, 2 * time.Second: true} {
		if v.settled(changed.Add(later)) != want {
			t.Errorf("%v later: %v", later, !want)
		}
	}
}

func TestWatchedDoesNotBelieveWhatIsNotTheBotanists(t *testing.T) {
	for _, test := range notTheBotanists {
		t.Run(test.name, func(t *testing.T) {
			w := watch(t)
			test.place(t, w.file, "theirs")
			w.holds("", test.want)
			if err := os.RemoveAll(w.file); err != nil {
				t.Fatal(err)
			}
			w.write("ours")
			w.holds("ours", "")
			if err := os.Remove(w.file); err != nil {
				t.Fatal(err)
			}
			os.Remove(w.file + ".real")
			test.place(t, w.file, "theirs")
			w.holds("ours", test.want)
		})
	}
}

func TestWatchedLooksAtTheDirectoriesAbove(t *testing.T) {
	for _, up := range []string{".", "..", "../.."} {
		w := watch(t)
		w.write("ours")
		w.holds("ours", "")
		dir := filepath.Join(w.dirs.Config, up)
		for mode, want := range map[os.FileMode]string{0o770: "other accounts can write DIR (mode 0770)", 0o707: "other accounts can write DIR (mode 0707)"} {
			if err := os.Chmod(dir, mode); err != nil {
				t.Fatal(err)
			}
			w.holds("ours", strings.ReplaceAll(want, "DIR", dir))
			if err := os.WriteFile(w.file, []byte("theirs"), 0o600); err != nil {
				t.Fatal(err)
			}
			w.holds("ours", strings.ReplaceAll(want, "DIR", dir))
			if err := os.Chmod(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			w.write("ours")
			w.holds("ours", "")
		}
	}
}

func TestWatchedBoundsTheFile(t *testing.T) {
	w := watch(t)
	w.write(strings.Repeat("x", 10<<20))
	if got, _ := w.Current(); len(got) > 256<<10+1 {
		t.Errorf("%d bytes were read", len(got))
	}
}

func TestEdit(t *testing.T) {
	dirs := dirsIn(t, own(t))
	file := filepath.Join(dirs.Config, "line")
	edit := func(want, content string) {
		t.Helper()
		got, err := dirs.Edit("line", func(path string, old []byte) ([]byte, error) {
			if string(old) != want || path != file {
				t.Errorf("change gets %s, %q; want %q", path, old, want)
			}
			return []byte(content), nil
		})
		if err != nil || got != file {
			t.Fatalf("%s, %v", got, err)
		}
	}
	edit("", "one\n")
	edit("one\n", "two\n")
	before, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	edit("two\n", "two\n")
	after, err := os.Stat(file)
	if err != nil || !os.SameFile(before, after) {
		t.Errorf("a file that stays what it is was replaced: %v", err)
	}
	refused := errors.New("no")
	if _, err := dirs.Edit("line", func(string, []byte) ([]byte, error) { return []byte("three"), refused }); !errors.Is(err, refused) {
		t.Errorf("err = %v", err)
	}
	if got, err := os.ReadFile(file); string(got) != "two\n" {
		t.Errorf("the file holds %q, %v", got, err)
	}
	for path, mode := range map[string]os.FileMode{dirs.Config: 0o700 | os.ModeDir, file: 0o600, file + ".lock": 0o600} {
		if info, err := os.Stat(path); err != nil || info.Mode() != mode {
			t.Errorf("%s: %v, %v", path, info.Mode(), err)
		}
	}
	holdsOnly(t, dirs.Config, "line", "line.lock")
}

func holdsOnly(t *testing.T, dir string, want ...string) {
	t.Helper()
	var names []string
	entries, err := os.ReadDir(dir)
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	if err != nil || fmt.Sprint(names) != fmt.Sprint(want) {
		t.Errorf("%s holds %v, %v", dir, names, err)
	}
}

// TestEditsWaitForEachOther: no edit is lost, and whoever reads meanwhile sees one whole version.
func TestEditsWaitForEachOther(t *testing.T) {
	w := watch(t)
	const editors, edits = 4, 10
	var editing, reading sync.WaitGroup
	done := make(chan struct{})
	reading.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
			}
			if got, err := w.Current(); err != nil || strings.Trim(got, "x\n") != "" || strings.Count(got, "\n") != strings.Count(got, "x\n") {
				t.Errorf("a reader sees %q, %v", got, err)
				return
			}
		}
	})
	for range editors {
		editing.Go(func() {
			for range edits {
				if _, err := w.dirs.Edit("line", func(_ string, old []byte) ([]byte, error) { return append(old, "x\n"...), nil }); err != nil {
					t.Error(err)
				}
			}
		})
	}
	editing.Wait()
	close(done)
	reading.Wait()
	w.holds(strings.Repeat("x\n", editors*edits), "")
}

func TestEditLeavesTheFileToWhoChangedItMeanwhile(t *testing.T) {
	for name, meanwhile := range map[string]func(w *watched){
		"written":  func(w *watched) { w.write("theirs") },
		"replaced": func(w *watched) { os.Remove(w.file); w.write("ours") },
		"removed":  func(w *watched) { os.Remove(w.file) },
	} {
		t.Run(name, func(t *testing.T) {
			w := watch(t)
			w.write("ours")
			var left []byte
			_, err := w.dirs.Edit("line", func(string, []byte) ([]byte, error) {
				meanwhile(w)
				left, _ = os.ReadFile(w.file)
				return []byte("edited"), nil
			})
			if !fault.Is(err, fault.Unavailable) || err.Error() != w.file+" was changed by somebody else meanwhile" {
				t.Errorf("err = %v", err)
			}
			if got, _ := os.ReadFile(w.file); !bytes.Equal(got, left) {
				t.Errorf("the file holds %q, not %q", got, left)
			}
			os.Remove(w.file)
			holdsOnly(t, w.dirs.Config, "line.lock")
		})
	}
	t.Run("made", func(t *testing.T) {
		w := watch(t)
		_, err := w.dirs.Edit("line", func(string, []byte) ([]byte, error) { w.write("theirs"); return []byte("edited"), nil })
		if !fault.Is(err, fault.Unavailable) {
			t.Errorf("err = %v", err)
		}
		w.holds("theirs", "")
	})
}

func TestEditRefusesWhatIsNotTheBotanists(t *testing.T) {
	for _, test := range notTheBotanists {
		t.Run(test.name, func(t *testing.T) {
			w := watch(t)
			test.place(t, w.file, "theirs")
			_, err := w.dirs.Edit("line", func(string, []byte) ([]byte, error) { t.Error("it was read"); return nil, nil })
			if !fault.Is(err, fault.Unavailable) || err.Error() != strings.ReplaceAll(test.want, "FILE", w.file) {
				t.Errorf("err = %v", err)
			}
		})
	}
	w := watch(t)
	if err := os.Chmod(w.dirs.Config, 0o770); err != nil {
		t.Fatal(err)
	}
	if _, err := w.dirs.Edit("line", func(string, []byte) ([]byte, error) { return []byte("x"), nil }); !fault.Is(err, fault.Unavailable) {
		t.Errorf("err = %v", err)
	}
	holdsOnly(t, w.dirs.Config)
}
