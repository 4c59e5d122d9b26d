package substrate

import (
	"cmp"
	"slices"
	"strings"

	"tendril/fault"
)

// unknown is the fault for a revision that names nothing. It helps with the
// existing names that are nearest.
func (r *Repository) unknown(rev, name string) error {
	f := fault.New(fault.NotFound, "%s has no commit that %q names", r.where(), Escape(rev))
	near := nearest(name, r.refNames(10_000), 3)
	if len(near) == 0 {
		return f.WithHint("list what there is with: git branch -a; git tag")
	}
	for i, n := range near {
		near[i] = Escape(n)
	}
	return f.WithHint("did you mean: %s", strings.Join(near, ", "))
}

// nearest returns up to n short names that are closest to name by edit
// distance, closest first, leaving out those that have little to do with it.
func nearest(name string, refs []string, n int) []string {
	type candidate struct {
		name     string
		distance int
	}
	var all []candidate
	for _, ref := range refs {
		short := ref
		for _, prefix := range []string{"refs/heads/", "refs/tags/", "refs/remotes/"} {
			short = strings.TrimPrefix(short, prefix)
		}
		d := editDistance(strings.ToLower(name), strings.ToLower(short))
		if d <= max(len(name), len(short))/2 || strings.Contains(short, name) {
			all = append(all, candidate{short, d})
		}
	}
	slices.SortStableFunc(all, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.distance, b.distance), strings.Compare(a.name, b.name))
	})
	var names []string
	for _, c := range all {
		if len(names) < n && !slices.Contains(names, c.name) {
			names = append(names, c.name)
		}
	}
	return names
}

// editDistance is Levenshtein's, over bytes, of at most 64 of each.
func editDistance(a, b string) int {
	a, b = a[:min(len(a), 64)], b[:min(len(b), 64)]
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost = 1 + min(diagonal, row[j], row[j+1])
			}
			diagonal, row[j+1] = row[j+1], cost
		}
	}
	return row[len(b)]
}
