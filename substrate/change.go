package substrate

import "context"

// Status is how a path differs between two trees.
type Status string

// The statuses.
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

// changes compares two trees, path by path. A renamed path is one that was
// deleted and one that was added.
func (g *gitDir) changes(ctx context.Context, from, to string) ([]Change, error) {
	out, err := g.run(ctx, nil, "diff-tree", "-r", "-z", "--raw", "--no-renames", "--no-abbrev", from, to)
	if err != nil {
		return nil, err
	}
	files, err := parseRawDiff(string(out))
	changes := make([]Change, len(files))
	for i, f := range files {
		changes[i] = f.Change
	}
	return changes, err
}
