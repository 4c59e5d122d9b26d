package substrate

import "context"

// FlagKind says why a reviewer has to look at a path.
type FlagKind string

// The kinds of flags.
const (
	FlagLeftOut FlagKind = "left-out" // the entry is not in the commit
)

// Flag is something that a reviewer must see.
type Flag struct {
	Kind FlagKind
	Path string // raw bytes; show it through [Escape]
	Note string
}

func (g *gitDir) flags(ctx context.Context, format Format, changes []Change) ([]Flag, error) {
	return nil, nil
}
