package ledger

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"golang.org/x/mod/sumdb/note"

	"tendril/fault"
)

// Report says what a verification found, and what it covers. Every part of it is
// true only of an export for which [Verify] returned no error.
type Report struct {
	Origin  string `json:"origin"`
	Rows    int64  `json:"rows"`    // in the export
	Covered int64  `json:"covered"` // by the largest checkpoint: the first so many
	Newer   int64  `json:"newer"`   // than every checkpoint: nothing proves them

	Checkpoints []Checkpoint `json:"checkpoints"` // that hold, the smallest first
	Key         string       `json:"key"`         // that their signatures were checked with
	KeyGiven    bool         `json:"key_given"`   // and not taken from the export itself

	// CheckpointGiven says that somebody kept the checkpoints; otherwise they come from
	// where the rows do. [Verify] cannot know: whoever called it says so.
	CheckpointGiven bool `json:"checkpoint_given"`

	// How often, and first at which row, the clock went back: a time earlier than
	// that of the row before. It happens when a clock is set.
	ClockBack   int64  `json:"clock_back"`
	ClockBackAt *int64 `json:"clock_back_at"`
}

// Words are the report for a person, one sentence a line: what holds, and what this
// verification cannot say.
func (r Report) Words() []string {
	words := []string{fmt.Sprintf("rows 0 to %d of %s are those that the checkpoint signs", r.Covered-1, r.Origin)}
	if len(r.Checkpoints) > 1 {
		words = append(words, fmt.Sprintf("all %d checkpoints hold", len(r.Checkpoints)))
	}
	if !r.CheckpointGiven {
		words = append(words, "the checkpoint comes from the same database as the rows, which proves only that the ledger is consistent in itself: "+
			"whoever can write that database and read its key can have rewritten both; "+
			"keep a checkpoint elsewhere (`tendril ledger checkpoint`), and give it with --checkpoint")
	}
	switch {
	case r.KeyGiven:
		words = append(words, "each checkpoint is signed with the key that was given")
	case r.CheckpointGiven:
		words = append(words, "each checkpoint is signed with the key that the export itself names: give the key that you kept to know whose it is")
	}
	if r.Newer > 0 {
		words = append(words, fmt.Sprintf("not covered: what is newer than the checkpoint (rows %d to %d); a newer checkpoint would cover it", r.Covered, r.Rows-1))
	}
	if r.ClockBack > 0 {
		words = append(words, fmt.Sprintf("the clock went back before %d of the rows, first before row %d", r.ClockBack, *r.ClockBackAt))
	}
	if r.CheckpointGiven {
		words = append(words, "not covered: a history that was rewritten before this checkpoint was kept; whoever holds the signing key can write one")
	}
	return words
}

// Verify reads an exported ledger, which is its rows with a newline after each, and
// checks that every row is spelled as rows are, that they are numbered 0, 1, 2, … and
// that the first so many have the root that each signed checkpoint says. key is the
// verifier key that the checkpoints have to be signed with; if it is empty, it is the
// one that the first row names, which proves only that the two belong together.
//
// The memory it takes grows with the logarithm of the number of rows. An export that
// cannot be read is a fault of the kind unavailable. Everything else that is wrong is
// invalid, and only rows that are not those which were signed, or not such as the Stem
// writes, are called a ledger that does not hold: an export that ends too early, or a key
// or a checkpoint of something else, is ordinarily a mistake of who verifies.
func Verify(export io.Reader, key string, signed ...[]byte) (Report, error) {
	if len(signed) == 0 {
		return Report{}, fault.New(fault.Invalid, "there is nothing to verify a ledger against").
			WithHint("give a checkpoint that was kept: `tendril ledger checkpoint` prints the one of now")
	}
	if key != "" {
		if _, err := note.NewVerifier(key); err != nil {
			return Report{}, notAKey(key, err)
		}
	}
	v := verification{report: Report{Key: key, KeyGiven: key != ""}, signed: signed}
	lines := bufio.NewReaderSize(export, LargestRow+1)
	for {
		line, err := lines.ReadSlice('\n')
		switch {
		case err == io.EOF && len(line) == 0:
			return v.end()
		case err == io.EOF:
			return Report{}, fault.New(fault.Invalid, "the export is not whole: row %d has no end", v.tree.size).
				WithHint("export again: tendril ledger export")
		case errors.Is(err, bufio.ErrBufferFull):
			return Report{}, doesNotHold("row %d is larger than %d bytes", v.tree.size, LargestRow)
		case err != nil:
			return Report{}, fault.New(fault.Unavailable, "read row %d of the export: %w", v.tree.size, err)
		}
		if err := v.row(line[:len(line)-1]); err != nil {
			return Report{}, err
		}
	}
}

type verification struct {
	report   Report
	signed   [][]byte
	due      []Checkpoint // that are larger than the tree, the smallest first
	tree     tree
	previous time.Time
}

func (v *verification) row(line []byte) error {
	r, err := ParseRow(line)
	if err != nil {
		return doesNotHold("row %d: %w", v.tree.size, err)
	}
	if r.Seq != v.tree.size {
		return doesNotHold("row %d stands where row %d belongs: a row was removed, added or moved", r.Seq, v.tree.size)
	}
	if r.Seq == 0 {
		if err := v.open(r.Opening); err != nil {
			return err
		}
	}
	if r.Time.Before(v.previous) {
		if v.report.ClockBack++; v.report.ClockBackAt == nil {
			v.report.ClockBackAt = &r.Seq
		}
	}
	v.previous = r.Time
	v.tree.add(line)
	for len(v.due) > 0 && v.due[0].Size == v.tree.size {
		if v.due[0].Root != v.tree.root() {
			return doesNotHold("the first %d rows are not those that the checkpoint of %d rows signs: %s", v.tree.size, v.tree.size, v.where())
		}
		v.report.Checkpoints = append(v.report.Checkpoints, v.due[0])
		v.due = v.due[1:]
	}
	return nil
}

// open reads the checkpoints, once the first row has said whose they have to be.
func (v *verification) open(opening *Opening) error {
	v.report.Origin = opening.Origin
	switch {
	case !v.report.KeyGiven:
		v.report.Key = opening.Key
	case opening.Key != v.report.Key:
		return fault.New(fault.Invalid, "the first row names the key %s, and not the one that was given: this is another ledger, or one that was written anew", opening.Key).
			WithHint("compare its key and its first row with what was kept of the ledger that you mean")
	}
	for _, signed := range v.signed {
		if c, err := ReadCheckpoint(signed); err != nil {
			return err
		} else if c.Origin != opening.Origin {
			return fault.New(fault.Invalid, "the export is of the ledger %s, and the checkpoint of %s", opening.Origin, c.Origin).
				WithHint("give a checkpoint of the export's own ledger with --checkpoint")
		}
		c, err := OpenCheckpoint(signed, v.report.Key)
		if err != nil {
			return err
		}
		v.due = append(v.due, c)
	}
	slices.SortStableFunc(v.due, func(a, b Checkpoint) int { return int(min(max(a.Size-b.Size, -1), 1)) })
	return nil
}

// where says which rows a change is among.
func (v *verification) where() string {
	if n := len(v.report.Checkpoints); n > 0 {
		return fmt.Sprintf("those before row %d are, so one after them was changed", v.report.Checkpoints[n-1].Size)
	}
	return "one of them was changed, or all were written anew"
}

func (v *verification) end() (Report, error) {
	if v.tree.size == 0 {
		return Report{}, fault.New(fault.Invalid, "the export has no rows").WithHint("export again: tendril ledger export")
	}
	if len(v.due) > 0 {
		return Report{}, fault.New(fault.Invalid, "the export ends after %d rows, before the checkpoint of %d rows: either it was made before the checkpoint, or rows were cut from its end%s",
			v.tree.size, v.due[0].Size, v.held()).
			WithHint("export again (tendril ledger export): an export that was made after the checkpoint and still ends before it shows that rows were cut")
	}
	v.report.Rows = v.tree.size
	v.report.Covered = v.report.Checkpoints[len(v.report.Checkpoints)-1].Size
	v.report.Newer = v.report.Rows - v.report.Covered
	return v.report, nil
}

// held says what an export that is too short does show.
func (v *verification) held() string {
	n := len(v.report.Checkpoints)
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("; its first %d rows are those that a smaller checkpoint signs", v.report.Checkpoints[n-1].Size)
}

func doesNotHold(format string, args ...any) error {
	return fault.New(fault.Invalid, "the ledger does not hold: "+format, args...).
		WithHint("keep this export and the checkpoint as they are, and compare them with an older export")
}
