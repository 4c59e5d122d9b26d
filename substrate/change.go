package substrate

import (
	"context"
	"errors"
	"strconv"
	"strings"
)

// Status is how a path differs between two trees.
type Status string

// The statuses. A renamed path is one that was deleted and one that was added.
const (
	Added    Status = "added"
	Modified Status = "modified"
	Deleted  Status = "deleted"
)

// Change is one path that differs. A mode of 0 and an id of "" stand for
// nothing at the path.
type Change struct {
	Path    string // raw bytes; show it through [Escape]
	Status  Status
	OldMode uint32
	NewMode uint32
	OldID   string
	NewID   string
}

// changes compares two trees, path by path.
func (g *gitDir) changes(ctx context.Context, from, to string) ([]Change, error) {
	out, err := g.run(ctx, nil, "diff-tree", "-r", "-z", "--raw", "--no-renames", "--no-abbrev", from, to)
	if err != nil {
		return nil, err
	}
	return parseRawDiff(string(out))
}

// parseRawDiff reads ":MODE MODE ID ID STATUS\0PATH\0" repeated.
func parseRawDiff(out string) ([]Change, error) {
	var changes []Change
	for out != "" {
		head, rest, ok1 := strings.Cut(out, "\x00")
		path, rest, ok2 := strings.Cut(rest, "\x00")
		fields := strings.Fields(strings.TrimPrefix(head, ":"))
		if !ok1 || !ok2 || len(fields) != 5 {
			return nil, errors.New("git diff-tree: unexpected answer")
		}
		c := Change{Path: path, Status: Modified, OldID: fields[2], NewID: fields[3]}
		for i, mode := range []*uint32{&c.OldMode, &c.NewMode} {
			n, err := strconv.ParseUint(fields[i], 8, 32)
			if err != nil {
				return nil, errors.New("git diff-tree: unexpected mode")
			}
			*mode = uint32(n)
		}
		if c.OldMode == 0 {
			c.Status, c.OldID = Added, ""
		}
		if c.NewMode == 0 {
			c.Status, c.NewID = Deleted, ""
		}
		changes = append(changes, c)
		out = rest
	}
	return changes, nil
}
