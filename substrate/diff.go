package substrate

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"tendril/fault"
)

// DiffOptions bound a diff. Zero means the default.
type DiffOptions struct {
	FileBytes int // of one file's hunks; default 256 KiB
	Bytes     int // of all hunks; default 8 MiB
}

// Diff is what a commit changes, made fit to be shown. It is made from objects
// only: no attribute and no NUL byte hides a change, and no driver runs.
type Diff struct {
	From, To  string // object ids
	Files     []FileDiff
	Flags     []Flag
	Truncated bool // something of a file is not shown, or hunks of files are not
}

// FileDiff is one file of a diff. A renamed file is one that was Deleted at
// RenamedFrom.
type FileDiff struct {
	Change
	RenamedFrom string // raw bytes; "" when it was not renamed
	Hunks       string // unified hunks, escaped line by line; a long line is cut
	Truncated   bool   // hunks were left out, or a line was cut
}

// Diff compares a commit with another, usually its base. Both are full ids.
func (r *Repository) Diff(ctx context.Context, from, to string, opts DiffOptions) (*Diff, error) {
	if opts.FileBytes <= 0 {
		opts.FileBytes = 256 << 10
	}
	if opts.Bytes <= 0 {
		opts.Bytes = 8 << 20
	}
	var trees [2]string
	for i, id := range []string{from, to} {
		if !r.Format.isID(id) {
			return nil, fault.New(fault.Invalid, "%q is not a full object id", Escape(id))
		}
		c, err := r.commit(ctx, r.git, id)
		if errors.Is(err, errMissing) {
			return nil, fault.New(fault.NotFound, "%s has no commit %s", r.where(), id)
		}
		if err != nil {
			return nil, err
		}
		trees[i] = c.Tree
	}
	raw, err := r.git.run(ctx, nil, "diff-tree", "-r", "-z", "--raw", "-M", "--no-abbrev", trees[0], trees[1])
	if err != nil {
		return nil, err
	}
	d := &Diff{From: from, To: to}
	if d.Files, err = parseRawDiff(string(raw)); err != nil {
		return nil, err
	}
	if err := r.git.hunks(ctx, trees, d, opts); err != nil {
		return nil, err
	}
	changes, err := r.git.changes(ctx, trees[0], trees[1])
	if err != nil {
		return nil, err
	}
	d.Flags, err = r.git.flags(ctx, r.Format, changes, trees[1])
	return d, err
}

// parseRawDiff reads ":MODE MODE ID ID STATUS\0PATH\0" repeated; a rename has
// two paths.
func parseRawDiff(out string) ([]FileDiff, error) {
	var files []FileDiff
	for out != "" {
		head, rest, ok1 := strings.Cut(out, "\x00")
		path, rest, ok2 := strings.Cut(rest, "\x00")
		fields := strings.Fields(strings.TrimPrefix(head, ":"))
		if !ok1 || !ok2 || len(fields) != 5 {
			return nil, errors.New("git diff-tree: unexpected answer")
		}
		f := FileDiff{Change: Change{Path: path, Status: Modified, OldID: fields[2], NewID: fields[3]}}
		for i, mode := range []*uint32{&f.OldMode, &f.NewMode} {
			n, err := strconv.ParseUint(fields[i], 8, 32)
			if err != nil {
				return nil, errors.New("git diff-tree: unexpected mode")
			}
			*mode = uint32(n)
		}
		if f.OldMode == 0 {
			f.Status, f.OldID = Added, ""
		}
		if f.NewMode == 0 {
			f.Status, f.NewID = Deleted, ""
		}
		if fields[4][0] == 'R' {
			f.RenamedFrom = path
			if f.Path, rest, ok1 = strings.Cut(rest, "\x00"); !ok1 {
				return nil, errors.New("git diff-tree: a rename without a second path")
			}
		}
		files = append(files, f)
		out = rest
	}
	return files, nil
}

// blocks is how many "diff --git" blocks Git prints for a file: a change of the
// kind of a path is printed as a deletion and an addition.
func (f *FileDiff) blocks() int {
	const kind = 0o170000
	if f.Status == Modified && f.OldMode&kind != f.NewMode&kind {
		return 2
	}
	return 1
}

// hunks fills in the hunks of each file. Git prints the files in the same order
// in which it lists them. A line of content always begins with one of " +-\@",
// so a line that begins with "diff --git" is Git's.
func (g *gitDir) hunks(ctx context.Context, trees [2]string, d *Diff, opts DiffOptions) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	args := []string{"diff-tree", "-r", "-p", "-M", "--text", "--no-ext-diff", "--no-textconv", "--no-color", "--full-index",
		"--src-prefix=a/", "--dst-prefix=b/", "--unified=3", "--submodule=short", trees[0], trees[1]}
	cmd, complaints, err := g.command(ctx, args...)
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	whole, err := splitPatch(bufio.NewReaderSize(out, 64<<10), d, opts)
	if !whole {
		cancel() // the rest is not wanted
	}
	waitErr := cmd.Wait()
	if whole && waitErr != nil {
		err = gitError(ctx, args, complaints, waitErr)
	}
	return err
}

// maxLine is how much of one line is kept.
const maxLine = 4096

// splitPatch reports whether it has read everything.
func splitPatch(in *bufio.Reader, d *Diff, opts DiffOptions) (whole bool, err error) {
	file, left, inHunk, full, total := -1, 0, false, false, 0
	for {
		line, cut, err := readLine(in)
		if err == io.EOF {
			break
		}
		if err != nil {
			return false, err
		}
		if bytes.HasPrefix(line, []byte("diff --git ")) {
			if left == 0 {
				if file++; file >= len(d.Files) {
					return false, errors.New("git diff-tree prints a file that it does not list")
				}
				left, full = d.Files[file].blocks(), false
			}
			left--
			inHunk = false
			continue
		}
		inHunk = inHunk || bytes.HasPrefix(line, []byte("@@ "))
		if !inHunk || file < 0 {
			continue // what the header says is in the list
		}
		f := &d.Files[file]
		text := Escape(string(line)) + "\n"
		if cut {
			text = Escape(string(line)) + " […]\n"
			f.Truncated, d.Truncated = true, true
		}
		if total+len(text) > opts.Bytes {
			f.Truncated, d.Truncated = true, true
			return false, nil
		}
		if full = full || len(f.Hunks)+len(text) > opts.FileBytes; full {
			f.Truncated, d.Truncated = true, true
			continue
		}
		f.Hunks += text
		total += len(text)
	}
	if file+1 != len(d.Files) || left != 0 {
		return false, errors.New("git diff-tree lists a file that it does not print")
	}
	return true, nil
}

// readLine reads one line without its end. What is beyond maxLine is dropped,
// and cut says so.
func readLine(in *bufio.Reader) (line []byte, cut bool, err error) {
	for {
		part, err := in.ReadSlice('\n')
		if len(line)+len(part) > maxLine+1 {
			cut = true
			part = part[:min(len(part), max(0, maxLine-len(line)))]
		}
		line = append(line, part...)
		switch {
		case err == bufio.ErrBufferFull:
			continue
		case err == io.EOF && len(line) > 0:
			return line, cut, nil
		case err != nil:
			return nil, false, err
		}
		return bytes.TrimSuffix(line, []byte("\n")), cut, nil
	}
}

// WriteTo writes the diff as text, flags first. Every byte of it is safe to
// show on a terminal.
func (d *Diff) WriteTo(w io.Writer) (int64, error) {
	out := &countingWriter{w: w}
	buf := bufio.NewWriter(out)
	for _, f := range d.Flags {
		fmt.Fprintf(buf, "! %s\n", f)
	}
	if len(d.Flags) > 0 {
		fmt.Fprintln(buf)
	}
	for _, f := range d.Files {
		fmt.Fprintln(buf, f.title())
		buf.WriteString(f.Hunks)
		if f.Truncated {
			fmt.Fprintln(buf, "[… not everything of this file is shown]")
		}
	}
	if d.Truncated {
		fmt.Fprintln(buf, "[… not everything is shown: the diff, a file or a line is too long]")
	}
	err := buf.Flush()
	return out.n, err
}

func (f *FileDiff) title() string {
	name := strconv.Quote(f.Path)
	if e := Escape(f.Path); e == f.Path && !strings.ContainsAny(e, "\t\"\\") && strings.TrimSpace(e) == e {
		name = e
	}
	title := "=== " + string(f.Status) + " " + name
	if f.RenamedFrom != "" {
		title = "=== renamed " + strconv.Quote(f.RenamedFrom) + " -> " + name
	}
	if f.Status == Modified && f.OldMode != f.NewMode {
		title += fmt.Sprintf(" (mode %06o -> %06o)", f.OldMode, f.NewMode)
	} else if f.Status == Added && f.NewMode != modeFile {
		title += fmt.Sprintf(" (mode %06o)", f.NewMode)
	}
	return title
}
