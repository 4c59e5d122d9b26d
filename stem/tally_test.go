//go:build linux

package stem

import (
	"strings"
	"testing"
	"unicode/utf8"
)

// A record keeps the latest reason of a destination, in a bounded number of bytes that are
// text.
func TestReasonsAreBounded(t *testing.T) {
	tally := newTally(nil)
	defer tally.close()
	tally.count("a", "first", false)
	tally.count("a", strings.Repeat("ä", longestRefusal)+"end", false)
	tally.count("a", "never kept", true)
	tally.sum("b", "not turned away", 1, 1, false)
	list := (&reach{tally: tally}).summary()
	if why := list[0].Refusal; why == nil || !strings.HasPrefix(*why, "ä") || len(*why) > longestRefusal+len("…") || !utf8.ValidString(*why) {
		t.Errorf("%+v", list[0])
	}
	if list[1].Refusal != nil {
		t.Errorf("%+v", list[1])
	}
	tally.sum("b", "turned away", 0, 0, true)
	if list := (&reach{tally: tally}).summary(); list[1].Refusal == nil || *list[1].Refusal != "turned away" {
		t.Errorf("%+v", list[1])
	}
}
