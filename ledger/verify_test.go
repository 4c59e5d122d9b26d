package ledger_test

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"golang.org/x/mod/sumdb/tlog"
	"pgregory.net/rapid"

	"tendril/fault"
	"tendril/ledger"
)

// exported is a ledger as `tendril ledger export` prints it.
type exported [][]byte

func (x exported) bytes() []byte {
	var all []byte
	for _, line := range x {
		all = append(append(all, line...), '\n')
	}
	return all
}

func exportOf(t testing.TB, entries []ledger.Entry) exported {
	t.Helper()
	var lines exported
	for _, row := range rowsOf(t, entries) {
		lines = append(lines, row.Line())
	}
	return lines
}

// keep is a checkpoint of the first rows of an export.
func (x exported) keep(t testing.TB, key ledger.Key, size int) []byte {
	t.Helper()
	_, _, root, err := ledger.Extend(0, x[:size], tlog.HashReaderFunc(nil))
	if err != nil {
		t.Fatal(err)
	}
	return sign(t, key, int64(size), root)
}

func verify(export []byte, key string, kept ...[]byte) (ledger.Report, error) {
	return ledger.Verify(bytes.NewReader(export), key, kept...)
}

func TestAWholeLedgerHolds(t *testing.T) {
	key := newKey(t)
	export := exportOf(t, history(key))
	if len(export) != 41 {
		t.Fatalf("%d rows", len(export))
	}
	var all [][]byte
	for size := range len(export) {
		kept := export.keep(t, key, size+1)
		all = append(all, kept)
		report, err := verify(export.bytes(), key.Verifier(), kept)
		if err != nil {
			t.Fatalf("against the checkpoint of %d rows: %v", size+1, err)
		}
		if report.Covered != int64(size+1) || report.Newer != int64(len(export)-size-1) || report.Rows != 41 || report.Origin != origin || !report.KeyGiven {
			t.Errorf("got %+v", report)
		}
	}
	rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	report, err := verify(export.bytes(), "", append(all, all[0])...)
	if err != nil || len(report.Checkpoints) != 42 || report.Covered != 41 || report.KeyGiven || report.Key != key.Verifier() {
		t.Errorf("against all at once: %+v, %v", report, err)
	}
	if !slices.IsSortedFunc(report.Checkpoints, func(a, b ledger.Checkpoint) int { return int(a.Size - b.Size) }) {
		t.Error("the smallest is not the first")
	}
}

// TestEveryByteOfAnExportCounts changes each byte of an export, and gives each other
// value to a sample of them.
func TestEveryByteOfAnExportCounts(t *testing.T) {
	key := newKey(t)
	lines := exportOf(t, history(key))
	kept, whole := lines.keep(t, key, len(lines)), lines.bytes()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	const stride = 4 // the positions are shared out, to keep every processor busy
	var workers sync.WaitGroup
	for worker := range stride {
		workers.Go(func() {
			random := rand.New(rand.NewPCG(seed, uint64(worker)))
			export := bytes.Clone(whole)
			try := func(i int, value byte) {
				export[i] = value
				if _, err := verify(export, key.Verifier(), kept); !fault.Is(err, fault.Invalid) {
					t.Errorf("byte %d was changed from %q to %q: %v", i, whole[i], value, err)
				}
				export[i] = whole[i]
			}
			for i := worker; i < len(whole); i += stride {
				try(i, whole[i]^1<<random.IntN(8))
			}
			i := random.IntN(len(whole))
			for difference := 1; difference < 256; difference++ {
				try(i, whole[i]^byte(difference))
			}
			if _, err := verify(export, key.Verifier(), kept); err != nil {
				t.Errorf("what was not changed: %v", err)
			}
		})
	}
	workers.Wait()
}

// renumbered is an export of which somebody has put the numbers right again.
func renumbered(t *testing.T, lines exported) exported {
	t.Helper()
	var result exported
	for i, line := range lines {
		row, err := ledger.ParseRow(line)
		if err != nil {
			t.Fatal(err)
		}
		row.Seq = int64(i)
		result = append(result, row.Line())
	}
	return result
}

// TestRowsCannotBeRearranged removes, repeats, adds and exchanges rows at each place,
// leaving the numbers as they were and also putting them right.
func TestRowsCannotBeRearranged(t *testing.T) {
	key := newKey(t)
	lines := exportOf(t, history(key))
	kept := lines.keep(t, key, len(lines))
	newer := append(slices.Clone(lines), newRow(t, 41, history(key)[1]).Line())
	detected := func(what string, i, j int, changed exported) {
		t.Helper()
		if _, err := verify(changed.bytes(), key.Verifier(), kept); !fault.Is(err, fault.Invalid) {
			t.Errorf("%s (%d, %d): %v", what, i, j, err)
		}
		// Without the numbers only the tree is left to tell. The first row is special and
		// can be renumbered by nobody.
		if i == 0 || j == 0 {
			return
		}
		again := renumbered(t, changed).bytes()
		if bytes.HasPrefix(again, lines.bytes()) {
			return // the last row once more is a newer row
		}
		if _, err := verify(again, key.Verifier(), kept); !fault.Is(err, fault.Invalid) {
			t.Errorf("%s (%d, %d), renumbered: %v", what, i, j, err)
		}
	}
	for i := range lines {
		detected("a row was removed", i, i, slices.Delete(slices.Clone(lines), i, i+1))
		// Also if newer rows fill the gap.
		detected("a row was removed before newer ones", i, i, slices.Delete(slices.Clone(newer), i, i+1))
		detected("a row stands twice", i, i, slices.Insert(slices.Clone(lines), i, lines[i]))
		added := newRow(t, int64(max(i, 10)), ledger.Entry{Kind: ledger.Decision, Actor: "mallory", Proof: ledger.ByPeer, Decision: ledger.Permit}).Line()
		detected("a row was added", i, i, slices.Insert(slices.Clone(lines), i, added))
		changed := slices.Clone(lines)
		if changed[i] = added; i > 0 {
			detected("a row was replaced", i, i, changed)
		}
	}
	for i := range lines {
		for j := range i {
			changed := slices.Clone(lines)
			changed[i], changed[j] = changed[j], changed[i]
			detected("two rows were exchanged", i, j, changed)
		}
	}
}

func TestTruncationIsDetected(t *testing.T) {
	key := newKey(t)
	lines := exportOf(t, history(key))
	kept, whole := lines.keep(t, key, len(lines)), lines.bytes()
	var sizes []int // each end of a row, and each place in the last two
	for size := range whole {
		if size == 0 || whole[size-1] == '\n' || size > len(whole)-2*len(lines[40]) {
			sizes = append(sizes, size)
		}
	}
	for _, size := range sizes {
		if _, err := verify(whole[:size], key.Verifier(), kept); !fault.Is(err, fault.Invalid) {
			t.Fatalf("cut after %d bytes: %v", size, err)
		}
	}
	_, err := verify(lines[:30].bytes(), key.Verifier(), kept, lines.keep(t, key, 20))
	if err == nil || !strings.Contains(err.Error(), "ends after 30 rows, before the checkpoint of 41 rows: either it was made before the checkpoint, or rows were cut from its end; its first 20 rows") {
		t.Errorf("got %v", err)
	}
}

// TestAnyMixOfChangesIsDetected: an export is the one that was checkpointed, or it does
// not hold, whatever was done to it.
func TestAnyMixOfChangesIsDetected(t *testing.T) {
	key := newKey(t)
	lines := exportOf(t, history(key))
	kept, whole := lines.keep(t, key, 20), lines[:20].bytes()
	rapid.Check(t, func(t *rapid.T) {
		changed := slices.Clone(lines)
		for range rapid.IntRange(1, 4).Draw(t, "changes") {
			i, j := rapid.IntRange(0, len(changed)-1).Draw(t, "i"), rapid.IntRange(0, len(changed)-1).Draw(t, "j")
			switch rapid.IntRange(0, 4).Draw(t, "what") {
			case 0:
				changed = slices.Delete(changed, min(i, j), max(i, j))
			case 1:
				changed[i], changed[j] = changed[j], changed[i]
			case 2:
				changed = slices.Insert(changed, i, changed[j])
			case 3:
				changed[i] = bytes.Clone(changed[i])
				changed[i][j*7%len(changed[i])] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")
			case 4:
				if row, err := ledger.ParseRow(changed[i]); err == nil {
					row.Seq, row.Actor = int64(i), "mallory"
					changed[i] = row.Line()
				}
			}
			if len(changed) == 0 {
				return
			}
		}
		report, err := verify(changed.bytes(), key.Verifier(), kept)
		if err == nil && !bytes.HasPrefix(changed.bytes(), whole) {
			t.Fatalf("it holds with other rows: %+v", report)
		}
	})
}

// TestAnotherHistory is one that the holder of another key, or of this one, has written.
func TestAnotherHistory(t *testing.T) {
	key, other := newKey(t), newKey(t)
	lines := exportOf(t, history(key))
	kept := lines.keep(t, key, len(lines))
	forged := exportOf(t, history(other))
	for name, test := range map[string]struct {
		key  string
		kept []byte
	}{
		"the kept checkpoint and key":              {key.Verifier(), kept},
		"the kept checkpoint":                      {"", kept},
		"the kept key and the forger's checkpoint": {key.Verifier(), forged.keep(t, other, len(forged))},
		"the forger's key, the kept checkpoint":    {other.Verifier(), kept},
	} {
		if _, err := verify(forged.bytes(), test.key, test.kept); !fault.Is(err, fault.Invalid) {
			t.Errorf("%s took another history: %v", name, err)
		}
	}
	// A key that is not the one which the ledger names signs nothing of it.
	if _, err := verify(forged.bytes(), key.Verifier(), forged.keep(t, key, 41)); err == nil || !strings.Contains(err.Error(), "the first row names the key") {
		t.Errorf("two keys: %v", err)
	}
	// The same key: what only the kept checkpoint shows.
	entries := history(key)
	entries[7].Actor = "mallory"
	rewritten := exportOf(t, entries)
	if _, err := verify(rewritten.bytes(), key.Verifier(), rewritten.keep(t, key, 41)); err != nil {
		t.Errorf("a rewritten history does not hold against a checkpoint of itself: %v", err)
	}
	_, err := verify(rewritten.bytes(), key.Verifier(), rewritten.keep(t, key, 41), lines.keep(t, key, 7), lines.keep(t, key, 9))
	if err == nil || !strings.Contains(err.Error(), "those before row 7 are") {
		t.Errorf("got %v", err)
	}
	// And what a checkpoint does not cover can be anything that is in order.
	report, err := verify(rewritten.bytes(), key.Verifier(), lines.keep(t, key, 7))
	if err != nil || report.Newer != 34 || !strings.Contains(strings.Join(report.Words(), "\n"), "not covered: what is newer than the checkpoint (rows 7 to 40)") {
		t.Errorf("got %v, %v", report.Words(), err)
	}
}

func TestTheReportSaysWhatItCannot(t *testing.T) {
	key := newKey(t)
	lines := exportOf(t, history(key))
	for _, test := range []struct {
		key        string
		size       int
		kept       bool
		want, lack string
	}{
		{key.Verifier(), 41, true, "signed with the key that was given", "newer than"},
		{"", 41, true, "signed with the key that the export itself names", "key that was given"},
		{"", 40, true, "newer than the checkpoint (rows 40 to 40)", "key that was given"},
		{"", 41, true, "before this checkpoint was kept", "consistent in itself"},
		{"", 41, false, "from the same database as the rows", "checkpoint was kept"},
		{key.Verifier(), 41, false, "signed with the key that was given", "checkpoint was kept"},
		{"", 41, false, "proves only that the ledger is consistent in itself", "each checkpoint"},
	} {
		report, err := verify(lines.bytes(), test.key, lines.keep(t, key, test.size))
		if err != nil {
			t.Fatal(err)
		}
		report.CheckpointGiven = test.kept
		words := strings.Join(report.Words(), "\n")
		if !strings.Contains(words, test.want) || strings.Contains(words, test.lack) {
			t.Errorf("got %s", words)
		}
	}
}

// TestOnlyRowsAreCalledTampering: what is wrong with the verification itself is said to be
// that, so that nobody takes a slip for an attack, nor learns to take an attack for a slip.
func TestOnlyRowsAreCalledTampering(t *testing.T) {
	key, other := newKey(t), newKey(t)
	lines := exportOf(t, history(key))
	kept, whole := lines.keep(t, key, 41), lines.bytes()
	elsewhere, _, err := ledger.NewKey("tendril/another")
	if err != nil {
		t.Fatal(err)
	}
	foreign, err := elsewhere.Sign(41, [32]byte{})
	if err != nil {
		t.Fatal(err)
	}
	const tampering = "the ledger does not hold"
	for name, test := range map[string]struct {
		export    []byte
		key       string
		kept      []byte
		want      string
		tampering bool
	}{
		"an export from before the checkpoint": {lines[:30].bytes(), "", kept, "the export ends after 30 rows", false},
		"a part of an export":                  {whole[:5000], "", kept, "the export is not whole", false},
		"nothing":                              {nil, "", kept, "the export has no rows", false},
		"a key that is none":                   {whole, "ed25519:AAAA", kept, "is not the key of a ledger", false},
		"a key that is none, and no rows":      {nil, "nonsense", kept, "is not the key of a ledger", false},
		"another key":                          {whole, other.Verifier(), kept, "and not the one that was given", false},
		"a checkpoint of another ledger":       {whole, "", foreign, "and the checkpoint of tendril/another", false},
		"a checkpoint that is none":            {whole, "", []byte("x"), "not a checkpoint", false},
		"a row that differs":                   {bytes.Replace(whole, []byte("ci-docs"), []byte("ci-dogs"), 1), "", kept, "are not those that the checkpoint", true},
		"a row that is missing":                {bytes.Join([][]byte{lines[:5].bytes(), lines[6:].bytes()}, nil), "", kept, "a row was removed", true},
	} {
		_, err := verify(test.export, test.key, test.kept)
		if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), tampering) != test.tampering {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAClockThatWentBackIsReported(t *testing.T) {
	key := newKey(t)
	rows := rowsOf(t, history(key))
	for _, i := range []int{5, 6, 20} {
		rows[i].Time = rows[i].Time.Add(-time.Duration(i) * time.Hour)
	}
	var lines exported
	for _, row := range rows {
		lines = append(lines, row.Line())
	}
	report, err := verify(lines.bytes(), "", lines.keep(t, key, 41))
	if err != nil || report.ClockBack != 3 || *report.ClockBackAt != 5 {
		t.Errorf("got %+v, %v", report, err)
	}
}

func TestVerifyRefuses(t *testing.T) {
	key := newKey(t)
	lines := exportOf(t, history(key))
	kept, whole := lines.keep(t, key, len(lines)), lines.bytes()
	for name, test := range map[string]struct {
		export []byte
		kept   [][]byte
		want   string
	}{
		"no checkpoint":           {whole, nil, "nothing to verify"},
		"nothing":                 {nil, [][]byte{kept}, "no rows"},
		"no end of the last row":  {whole[:len(whole)-1], [][]byte{kept}, "row 40 has no end"},
		"lines that end in CR LF": {bytes.ReplaceAll(whole, []byte("\n"), []byte("\r\n")), [][]byte{kept}, "row 0"},
		"an empty line":           {append(bytes.Clone(whole), '\n'), [][]byte{kept}, "row 41"},
		"a line without an end":   {append(bytes.Clone(whole), bytes.Repeat([]byte("a"), 1<<20)...), [][]byte{kept}, "larger than"},
		"no checkpoint in it":     {whole, [][]byte{[]byte("a checkpoint")}, "not a checkpoint"},
	} {
		if _, err := verify(test.export, key.Verifier(), test.kept...); !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	gone := errors.New("gone")
	_, err := ledger.Verify(io.MultiReader(bytes.NewReader(whole[:5000]), iotest.ErrReader(gone)), "", kept)
	if !fault.Is(err, fault.Unavailable) || !errors.Is(err, gone) {
		t.Errorf("what cannot be read: %v", err)
	}
}
