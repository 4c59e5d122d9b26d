package leak

import (
	"cmp"
	"encoding/binary"
	"slices"
)

// The patterns are a nondeterministic automaton whose states are computed from where
// they stand. A walk makes it deterministic on the way, for what it meets: a few dozen
// states for ordinary text, and a bounded number for any.

// item is a place within one pattern that some bytes up to here lead to.
type item struct {
	pattern uint16
	at      uint16 // characters that are complete
	form    uint8  // of the next one, if place is not 0; from firstBreak on, a line break
	place   uint8  // bytes of that form that are there
}

const (
	firstBreak = 128
	broken     = 255 // with place 0: a line broke just here
)

// state is a set of items. The places at which every pattern may begin are in all of
// them and not listed.
type state struct {
	items []item
	next  [256]*state // nil where nobody was yet
	found string      // the name of a secret that ends here
}

// walk follows one stream through the patterns.
type walk struct {
	patterns []pattern
	forms    *[256][]form // of each character
	longest  int          // bytes that the longest match can have

	states map[string]*state // by the items
	size   int               // items in states
	begin  *state            // the one without items
	now    *state
	since  int // bytes since begin, all of which a match may need
}

// The most that a walk keeps: about 1 MiB of states.
const (
	mostStates = 512
	mostItems  = 64 << 10
)

func newWalk(patterns []pattern, forms *[256][]form, longest int) *walk {
	w := &walk{patterns: patterns, forms: forms, longest: longest}
	w.forget()
	w.now = w.begin
	return w
}

func (w *walk) forget() {
	w.states, w.size = map[string]*state{}, 0
	w.begin = w.intern(nil)
}

// over goes over bytes until a secret is complete, and returns how many that took.
func (w *walk) over(bytes []byte) (taken int, found string) {
	for i := 0; i < len(bytes); {
		if w.now == w.begin { // as it is for most bytes
			i = w.skip(bytes, i)
			w.since = 0
			if i == len(bytes) {
				break
			}
		}
		next := w.now.next[bytes[i]]
		if next == nil {
			next = w.step(bytes[i])
		}
		i++
		w.now = next
		w.since++
		if next.found != "" {
			return i, next.found
		}
	}
	if w.now == w.begin {
		w.since = 0
	}
	return len(bytes), ""
}

// skip returns the next place from i on at which a byte leads, or may lead, away from
// begin.
func (w *walk) skip(bytes []byte, i int) int {
	begin := w.begin
	for i < len(bytes) && begin.next[bytes[i]] == begin {
		i++
	}
	return i
}

// pending is how many of the last bytes may be part of a match.
func (w *walk) pending() int { return min(w.since, w.longest) }

// step finds where a byte leads from the present state, and remembers it.
func (w *walk) step(c byte) *state {
	var items []item
	for _, own := range w.now.items {
		items = w.advance(items, own, c)
	}
	for p := range w.patterns {
		items = w.advance(items, item{pattern: uint16(p)}, c)
	}
	slices.SortFunc(items, func(a, b item) int {
		return cmp.Or(cmp.Compare(a.pattern, b.pattern), cmp.Compare(a.at, b.at), cmp.Compare(a.form, b.form), cmp.Compare(a.place, b.place))
	})
	items = slices.Compact(items)
	from := w.now
	if len(w.states) >= mostStates || w.size+len(items) > mostItems {
		w.forget()
		from = w.intern(from.items)
	}
	next := w.intern(items)
	from.next[c] = next
	return next
}

// advance appends where a byte leads from an item.
func (w *walk) advance(items []item, own item, c byte) []item {
	p := w.patterns[own.pattern]
	add := func(forms []form, first uint8, complete item) {
		if own.place > 0 {
			first, forms = own.form, forms[own.form-first:][:1]
		}
		for i := range forms {
			switch f := &forms[i]; {
			case !f.at(int(own.place), c):
			case int(own.place)+1 == len(f.lower):
				items = append(items, complete)
			default:
				items = append(items, item{own.pattern, own.at, first + uint8(i), own.place + 1})
			}
		}
	}
	if own.place == 0 || own.form < firstBreak {
		add(w.forms[p.text[own.at]], 0, item{pattern: own.pattern, at: own.at + 1})
	}
	if p.wrap && own.at > 0 && (own.place > 0 && own.form >= firstBreak || own.place == 0 && own.form != broken) {
		add(breaks, firstBreak, item{pattern: own.pattern, at: own.at, form: broken})
	}
	return items
}

func (w *walk) intern(items []item) *state {
	var key []byte
	for _, own := range items {
		key = binary.BigEndian.AppendUint16(key, own.pattern)
		key = binary.BigEndian.AppendUint16(key, own.at)
		key = append(key, own.form, own.place)
	}
	if known, ok := w.states[string(key)]; ok {
		return known
	}
	made := &state{items: items}
	for _, own := range items {
		if p := w.patterns[own.pattern]; int(own.at) == len(p.text) {
			made.found = p.name
		}
	}
	w.states[string(key)] = made
	w.size += len(items)
	return made
}
