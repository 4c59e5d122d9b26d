// Package spelling says how names are written, and finds the word that somebody
// probably meant, so that a refusal can name it. Nothing is ever corrected.
package spelling

import "strings"

// Nearest returns the candidate that is closest to word, if one is close enough
// to be a slip of the keyboard: at most one edit for each three characters of
// the longer word, and at least one. An edit inserts, removes or replaces a
// character, or swaps two neighbours; upper and lower case count as the same. Of
// equally close candidates the first wins.
func Nearest(word string, candidates []string) (nearest string, ok bool) {
	const longest = 64 // nothing that we name is longer; bounds the work on hostile words
	if len(word) > longest {
		return "", false
	}
	best := -1
	for _, candidate := range candidates {
		if len(candidate) > longest {
			continue
		}
		d := distance([]rune(strings.ToLower(word)), []rune(strings.ToLower(candidate)))
		if d <= max(1, max(len(word), len(candidate))/3) && (best < 0 || d < best) {
			nearest, best = candidate, d
		}
	}
	return nearest, best >= 0
}

// distance is the optimal string alignment distance.
func distance(a, b []rune) int {
	// Three rows of the usual table: a swap looks two rows back.
	before := make([]int, len(b)+1)
	previous := make([]int, len(b)+1)
	current := make([]int, len(b)+1)
	for j := range previous {
		previous[j] = j
	}
	for i := 1; i <= len(a); i++ {
		current[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			current[j] = min(previous[j]+1, current[j-1]+1, previous[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				current[j] = min(current[j], before[j-2]+1)
			}
		}
		before, previous, current = previous, current, before
	}
	return previous[len(b)]
}
