package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"tendril/capability"
	"tendril/display"
	"tendril/fault"
	"tendril/ledger"
)

type ledgerCommands struct {
	Tail       ledgerTailCommand       `cmd:"" help:"Show the newest rows of the ledger."`
	Export     ledgerExportCommand     `cmd:"" help:"Print the whole ledger, a row a line, for whoever verifies it."`
	Checkpoint ledgerCheckpointCommand `cmd:"" help:"Print what to keep elsewhere, so that no rewrite goes unnoticed."`
	Key        ledgerKeyCommand        `cmd:"" help:"Print the key that verifies the checkpoints' signatures."`
	Verify     ledgerVerifyCommand     `cmd:"" help:"Say whether a ledger is the one that a checkpoint was made of."`
}

type ledgerTailCommand struct {
	Limit int `default:"20" help:"How many."`
}

func (t *ledgerTailCommand) Run(ctx context.Context, c *console) error {
	if t.Limit < 1 {
		return fault.New(fault.Invalid, "a limit of %d rows is not between 1 and %d", t.Limit, capability.MostRows)
	}
	output, err := c.invoke(ctx, "ledger.tail", capability.LedgerPageInput{Limit: t.Limit})
	if err != nil {
		return err
	}
	for _, line := range output.(capability.LedgerPage).Rows {
		if c.json {
			fmt.Fprintln(c.stdout, line)
			continue
		}
		row, err := ledger.ParseRow([]byte(line))
		if err != nil {
			return err
		}
		fmt.Fprintln(c.stdout, display.Line(rowText(row)))
	}
	return nil
}

// rowText is a row for a person.
func rowText(r ledger.Row) string {
	who := r.Actor
	if who == "" {
		who = "nobody"
	}
	if r.UID != nil {
		who += fmt.Sprintf(" (%s, uid %d)", r.Proof, *r.UID)
	}
	text := fmt.Sprintf("%d %s %s: %s", r.Seq, at(r.Time), r.Kind, who)
	for _, part := range []string{r.Decision, r.Capability, r.Change, r.Target, r.Subject, r.Run, r.State, r.Fault} {
		if part != "" {
			text += " " + part
		}
	}
	if r.Rule != "" {
		text += " (rule: " + r.Rule + ")"
	}
	return text
}

type ledgerExportCommand struct {
	CheckpointOut string `placeholder:"FILE" type:"path" help:"First write a checkpoint into this new file: the export then has all the rows that it covers."`
}

func (e *ledgerExportCommand) Run(ctx context.Context, c *console) error {
	if e.CheckpointOut != "" {
		checkpoint, err := c.checkpoint(ctx)
		if err != nil {
			return err
		}
		if err := writeNew(e.CheckpointOut, []byte(checkpoint.Checkpoint)); err != nil {
			return err
		}
	}
	return c.exportLedger(ctx, c.stdout, 0)
}

// exportLedger writes the rows from one on that there are when it begins: asking for
// them makes more.
func (c *console) exportLedger(ctx context.Context, to io.Writer, from int64) error {
	size := int64(-1)
	for size < 0 || from < size {
		output, err := c.invoke(ctx, "ledger.export", capability.LedgerPageInput{From: &from, Limit: capability.MostRows})
		if err != nil {
			return err
		}
		page := output.(capability.LedgerPage)
		if size < 0 {
			size = page.Size
		}
		if len(page.Rows) == 0 && from < size {
			return fault.New(fault.Internal, "row %d of the ledger is missing", from)
		}
		for _, line := range page.Rows[:min(int64(len(page.Rows)), size-from)] {
			if _, err := io.WriteString(to, line+"\n"); err != nil {
				return fault.New(fault.Internal, "writing the ledger: %w", err)
			}
		}
		from += int64(len(page.Rows))
	}
	return nil
}

type ledgerCheckpointCommand struct{}

func (*ledgerCheckpointCommand) Run(ctx context.Context, c *console) error {
	checkpoint, err := c.checkpoint(ctx)
	if err != nil {
		return err
	}
	if c.json {
		c.printJSON(checkpoint)
		return nil
	}
	fmt.Fprint(c.stdout, display.Text(checkpoint.Checkpoint))
	return nil
}

func (c *console) checkpoint(ctx context.Context) (capability.LedgerCheckpoint, error) {
	output, err := c.invoke(ctx, "ledger.checkpoint", capability.EmptyInput{})
	if err != nil {
		return capability.LedgerCheckpoint{}, err
	}
	return output.(capability.LedgerCheckpoint), nil
}

type ledgerKeyCommand struct{}

func (*ledgerKeyCommand) Run(ctx context.Context, c *console) error {
	checkpoint, err := c.checkpoint(ctx)
	if err != nil {
		return err
	}
	if c.json {
		c.printJSON(struct {
			Key string `json:"key"`
		}{checkpoint.Key})
		return nil
	}
	fmt.Fprintln(c.stdout, display.Line(checkpoint.Key))
	return nil
}

type ledgerVerifyCommand struct {
	Export     string   `arg:"" optional:"" help:"A file that ledger export wrote; - is stdin (default: this site's ledger)."`
	Checkpoint []string `placeholder:"FILE" help:"A checkpoint that was kept; can be given more than once (default: this site's newest, which proves the least)."`
	Key        string   `placeholder:"KEY" help:"The key that the checkpoints are signed with (default: the one that the ledger names)."`
}

// largestCheckpoint is more than a signed note of one line each has.
const largestCheckpoint = 64 << 10

func (v *ledgerVerifyCommand) Run(ctx context.Context, c *console) error {
	signed, err := v.checkpoints(ctx, c)
	if err != nil {
		return err
	}
	report, err := v.verify(ctx, c, signed)
	if err != nil {
		return err
	}
	report.CheckpointGiven = len(v.Checkpoint) > 0
	if c.json {
		c.printJSON(report)
		return nil
	}
	for _, sentence := range report.Words() {
		fmt.Fprintln(c.stdout, display.Line(sentence))
	}
	return nil
}

// checkpoints are those that were kept, or this site's newest.
func (v *ledgerVerifyCommand) checkpoints(ctx context.Context, c *console) ([][]byte, error) {
	var signed [][]byte
	for _, name := range v.Checkpoint {
		note, err := readFile(ctx, name, c.stdin, largestCheckpoint)
		if err != nil {
			return nil, err
		}
		signed = append(signed, note)
	}
	if len(signed) > 0 {
		return signed, nil
	}
	checkpoint, err := c.checkpoint(ctx)
	if err != nil {
		return nil, err
	}
	return [][]byte{[]byte(checkpoint.Checkpoint)}, nil
}

func (v *ledgerVerifyCommand) verify(ctx context.Context, c *console, signed [][]byte) (ledger.Report, error) {
	from, to := io.Pipe()
	var exported lineCounter
	written := make(chan error, 1)
	go func() {
		err := v.write(ctx, c, to, &exported)
		written <- err
		to.CloseWithError(err) // nil is the end
	}()
	report, err := ledger.Verify(from, v.Key, signed...)
	from.CloseWithError(io.ErrClosedPipe) // whoever still writes stops
	if failed := <-written; failed != nil && !errors.Is(failed, io.ErrClosedPipe) {
		return ledger.Report{}, failed
	}
	if err == nil && v.Export != "" { // the report is about what was given
		report.Rows = exported.lines
		report.Covered = min(report.Covered, report.Rows)
		report.Newer = report.Rows - report.Covered
	}
	return report, err
}

// write writes the ledger that is to be verified. To ask for this site's checkpoint made
// rows that an export from before does not have: they follow it then.
func (v *ledgerVerifyCommand) write(ctx context.Context, c *console, to io.Writer, exported *lineCounter) error {
	if v.Export == "" {
		return c.exportLedger(ctx, to, 0)
	}
	file := reading(ctx, v.Export, c.stdin)
	defer file.Close()
	if _, err := io.Copy(io.MultiWriter(to, exported), file); err != nil {
		if errors.Is(err, io.ErrClosedPipe) {
			return err
		}
		return fault.New(fault.Invalid, "reading the export: %w", err)
	}
	if len(v.Checkpoint) > 0 || exported.lines == 0 || !exported.whole {
		return nil
	}
	return c.exportLedger(ctx, to, exported.lines)
}

// lineCounter counts the lines that are written to it.
type lineCounter struct {
	lines int64
	whole bool // the last one has an end
}

func (n *lineCounter) Write(p []byte) (int, error) {
	n.lines += int64(bytes.Count(p, []byte("\n")))
	n.whole = bytes.HasSuffix(p, []byte("\n"))
	return len(p), nil
}
