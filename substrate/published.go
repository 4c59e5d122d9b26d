package substrate

import (
	"context"
	"errors"
	"strings"

	"tendril/fault"
)

// mostTips is how many branches and tags are looked at.
const mostTips = 100_000

// Published reports whether a commit is part of the history of a branch or a tag. What
// only a stash, a reflog, another reference or a run's branch holds, or nothing, is not.
func (r *Repository) Published(ctx context.Context, id string) (bool, error) {
	var ask strings.Builder
	ask.WriteString(id + "\n")
	for _, ref := range r.refNames(mostTips) {
		if !strings.HasPrefix(ref, "refs/heads/") && !strings.HasPrefix(ref, "refs/tags/") || strings.HasPrefix(ref, "refs/heads/tendril/") {
			continue
		}
		tip, _, err := r.readRef(ref)
		if errors.Is(err, errNoRef) {
			continue // it is gone since
		}
		if err != nil {
			return false, err
		}
		ask.WriteString("^" + tip + "\n")
	}
	// Whatever is left when all that they reach is taken away is in none of them.
	left, err := r.git.run(ctx, strings.NewReader(ask.String()), "rev-list", "--stdin", "--max-count=1", "--ignore-missing")
	if err != nil {
		return false, fault.New(fault.Invalid, "looking for the branches that hold %s: %w", id, err)
	}
	return len(left) == 0, nil
}
