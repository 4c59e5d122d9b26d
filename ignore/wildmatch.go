package ignore

// token is one element of a compiled pattern.
type token struct {
	kind  tokenKind
	class set // the bytes that one matches
}

type tokenKind uint8

const (
	one   tokenKind = iota // exactly one byte, of class
	star                   // any number of bytes, none of them a slash
	stars                  // any number of bytes
	skip                   // nothing; the next two tokens, ** and a slash, may be left out
)

// set is a set of bytes.
type set [4]uint64

func (s *set) add(c byte)      { s[c>>6] |= 1 << (c & 63) }
func (s *set) remove(c byte)   { s[c>>6] &^= 1 << (c & 63) }
func (s *set) has(c byte) bool { return s[c>>6]&(1<<(c&63)) != 0 }

func (s *set) invert() {
	for i := range s {
		s[i] = ^s[i]
	}
}

func (s *set) addRange(low, high byte) {
	for c := int(low); c <= int(high); c++ {
		s.add(byte(c))
	}
}

// compile reads a pattern as Git's wildmatch does, in paths with WM_PATHNAME,
// in which only ** crosses a slash. never says that nothing matches; least is
// how many bytes whatever matches has.
func compile(p string, paths bool) (glob []token, least int, never bool) {
	for i := 0; i < len(p); {
		var t token
		switch p[i] {
		case '*':
			start := i
			for i < len(p) && p[i] == '*' {
				i++
			}
			t.kind = star
			switch {
			case !paths:
				t.kind = stars
			case i-start < 2:
			case start > 0 && p[start-1] != '/':
			case i == len(p):
				t.kind = stars
			case p[i] == '/':
				glob = append(glob, token{kind: skip})
				least-- // of the slash that follows
				t.kind = stars
			case p[i] == '\\' && i+1 < len(p) && p[i+1] == '/':
				t.kind = stars
			}
			glob = append(glob, t)
			continue
		case '?':
			i++
			t.class.invert()
			if paths {
				t.class.remove('/')
			}
		case '[':
			n := t.class.parse(p[i:])
			if n == 0 {
				return nil, 0, true
			}
			i += n
			if paths {
				t.class.remove('/')
			}
		case '\\':
			if i+1 == len(p) {
				return nil, 0, true
			}
			t.class.add(p[i+1])
			i += 2
		default:
			t.class.add(p[i])
			i++
		}
		glob = append(glob, t)
		least++
	}
	return glob, least, false
}

// parse reads a bracket expression at the start of p and returns its length, 0
// when it is malformed.
func (s *set) parse(p string) int {
	at := func(i int) byte {
		if i < len(p) {
			return p[i]
		}
		return 0
	}
	i := 1
	negated := at(i) == '!' || at(i) == '^'
	if negated {
		i++
	}
	prev := byte(0) // where a range may start; 0: nowhere
	for first := true; first || at(i) != ']'; first = false {
		c := at(i)
		switch {
		case c == 0:
			return 0
		case c == '\\':
			i++
			if c = at(i); c == 0 {
				return 0
			}
			s.add(c)
		case c == '-' && prev != 0 && at(i+1) != 0 && at(i+1) != ']':
			i++
			high := at(i)
			if high == '\\' {
				i++
				if high = at(i); high == 0 {
					return 0
				}
			}
			s.addRange(prev, high)
			c = 0
		case c == '[' && at(i+1) == ':':
			end := i + 2
			for at(end) != 0 && at(end) != ']' {
				end++
			}
			if at(end) == 0 {
				return 0
			}
			if end-i < 3 || p[end-1] != ':' {
				s.add('[') // no ":]" follows: an ordinary member
				break
			}
			class, ok := classes[p[i+2:end-1]]
			if !ok {
				return 0
			}
			for b := range 0x80 {
				if class(byte(b)) {
					s.add(byte(b))
				}
			}
			i, c = end, 0
		default:
			s.add(c)
		}
		prev = c
		i++
	}
	if negated {
		s.invert()
	}
	return i + 1
}

// classes are the named classes, as Git's own ctype has them: no byte above
// ASCII, and neither vertical tab nor form feed is a space.
var classes = map[string]func(byte) bool{
	"alnum":  func(c byte) bool { return letter(c) || digit(c) },
	"alpha":  letter,
	"blank":  func(c byte) bool { return c == ' ' || c == '\t' },
	"cntrl":  func(c byte) bool { return c < 0x20 || c == 0x7f },
	"digit":  digit,
	"graph":  func(c byte) bool { return c > 0x20 && c < 0x7f },
	"lower":  func(c byte) bool { return 'a' <= c && c <= 'z' },
	"print":  func(c byte) bool { return c >= 0x20 && c < 0x7f },
	"punct":  func(c byte) bool { return c > 0x20 && c < 0x7f && !letter(c) && !digit(c) },
	"space":  func(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' },
	"upper":  func(c byte) bool { return 'A' <= c && c <= 'Z' },
	"xdigit": func(c byte) bool { return digit(c) || 'a' <= c|0x20 && c|0x20 <= 'f' },
}

func letter(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }
func digit(c byte) bool  { return '0' <= c && c <= '9' }

// matchGlob follows all ways through the pattern at once.
func matchGlob(glob []token, text string) bool {
	now, next := newStates(glob), newStates(glob)
	now.enter(0)
	for i := 0; i < len(text) && len(now.list) > 0; i++ {
		next.clear()
		for _, s := range now.list {
			next.step(s, text[i])
		}
		now, next = next, now
	}
	return now.in[len(glob)]
}

// states is a set of places in a pattern. Place i means that the tokens before i
// have matched what was read.
type states struct {
	glob []token
	in   []bool
	list []int
}

func newStates(glob []token) *states {
	return &states{glob: glob, in: make([]bool, len(glob)+1)}
}

func (st *states) clear() {
	for _, s := range st.list {
		st.in[s] = false
	}
	st.list = st.list[:0]
}

// enter adds a place and all that are reached from it without reading.
func (st *states) enter(s int) {
	for !st.in[s] {
		st.in[s] = true
		st.list = append(st.list, s)
		if s == len(st.glob) || st.glob[s].kind == one {
			return
		}
		if st.glob[s].kind == skip {
			st.enter(s + 3)
		}
		s++
	}
}

// step adds where reading c leads from the place s.
func (st *states) step(s int, c byte) {
	if s == len(st.glob) {
		return
	}
	switch t := &st.glob[s]; t.kind {
	case one:
		if t.class.has(c) {
			st.enter(s + 1)
		}
	case star:
		if c != '/' {
			st.enter(s)
		}
	case stars:
		st.enter(s)
	}
}
