package ledger

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf16"
	"unicode/utf8"

	"tendril/fault"
)

const timeLayout = "2006-01-02T15:04:05.000Z"

// Line is the row as one line of JSON, without a newline: these bytes are the leaf of
// the tree. Every key is there, in one order, with null for what is not. A string holds
// printable ASCII only, and \u escapes of four lower case digits for the rest; so there is
// one spelling of each row, whatever version of Unicode a program knows, and a row can be
// shown on a terminal as it is.
func (r Row) Line() []byte {
	b := make([]byte, 0, 512)
	b = strconv.AppendInt(append(b, `{"seq":`...), r.Seq, 10)
	b = appendText(append(b, `,"time":`...), r.Time.Format(timeLayout))
	b = appendText(append(b, `,"kind":`...), string(r.Kind))
	b = appendText(append(b, `,"actor":`...), r.Actor)
	b = appendText(append(b, `,"proof":`...), r.Proof)
	b = appendNumber(append(b, `,"uid":`...), r.UID)
	b = appendText(append(b, `,"capability":`...), r.Capability)
	if utf8.ValidString(r.Subject) {
		b = appendText(append(b, `,"subject":`...), r.Subject)
		b = append(b, `,"subject_b64":null`...)
	} else {
		b = append(b, `,"subject":null,"subject_b64":"`...)
		b = append(base64.StdEncoding.AppendEncode(b, []byte(r.Subject)), '"')
	}
	b = appendText(append(b, `,"run":`...), r.Run)
	b = appendText(append(b, `,"decision":`...), r.Decision)
	b = appendText(append(b, `,"fault":`...), r.Fault)
	b = appendText(append(b, `,"rule":`...), r.Rule)
	b = appendNumber(append(b, `,"of":`...), r.Of)
	b = appendDigests(append(b, `,"digests":`...), r.Digests)
	b = appendText(append(b, `,"change":`...), r.Change)
	b = appendText(append(b, `,"target":`...), r.Target)
	b = appendText(append(b, `,"state":`...), r.State)
	b = appendOpening(append(b, `,"open":`...), r.Opening)
	return append(b, '}')
}

func appendText(b []byte, s string) []byte {
	if s == "" {
		return append(b, "null"...)
	}
	b = append(b, '"')
	for _, c := range s {
		b = appendRune(b, c)
	}
	return append(b, '"')
}

func appendRune(b []byte, c rune) []byte {
	switch {
	case c == '"' || c == '\\':
		return append(b, '\\', byte(c))
	case c >= ' ' && c <= '~':
		return append(b, byte(c))
	case c > 0xffff:
		high, low := utf16.EncodeRune(c)
		return appendUnit(appendUnit(b, high), low)
	}
	return appendUnit(b, c)
}

func appendUnit(b []byte, c rune) []byte {
	const digits = "0123456789abcdef"
	return append(b, '\\', 'u', digits[c>>12&15], digits[c>>8&15], digits[c>>4&15], digits[c&15])
}

func appendNumber[N int | int64](b []byte, n *N) []byte {
	if n == nil {
		return append(b, "null"...)
	}
	return strconv.AppendInt(b, int64(*n), 10)
}

func appendDigests(b []byte, digests map[string]string) []byte {
	if len(digests) == 0 {
		return append(b, "null"...)
	}
	separator := byte('{')
	for _, name := range slices.Sorted(maps.Keys(digests)) {
		b = appendText(append(b, separator), name)
		b = appendText(append(b, ':'), digests[name])
		separator = ','
	}
	return append(b, '}')
}

func appendOpening(b []byte, o *Opening) []byte {
	if o == nil {
		return append(b, "null"...)
	}
	b = strconv.AppendInt(append(b, `{"format":`...), int64(o.Format), 10)
	b = appendText(append(b, `,"origin":`...), o.Origin)
	b = appendText(append(b, `,"key":`...), o.Key)
	return append(b, '}')
}

// cut marks a text that was longer than its bound.
const cut = '…'

// clip returns s as it is if it takes at most so many bytes in a row, and otherwise a
// beginning of it that does together with the mark. What is no UTF-8 becomes U+FFFD.
func clip(s string, most int) string {
	mark := len(appendRune(nil, cut))
	var buffer [12]byte
	size, kept := 0, 0
	for i := 0; i < len(s); {
		c, width := utf8.DecodeRuneInString(s[i:])
		i += width
		if size += len(appendRune(buffer[:0], c)); size > most {
			return toText(s[:kept]) + string(cut)
		}
		if size <= most-mark {
			kept = i
		}
	}
	return toText(s)
}

func toText(s string) string {
	return strings.ToValidUTF8(s, string(utf8.RuneError))
}

// clipBytes is clip for text that need not be UTF-8: if it is none, it stays as it is,
// cut at so many of its own bytes.
func clipBytes(s string, most int) string {
	if utf8.ValidString(s) {
		return clip(s, most)
	}
	if len(s) <= most {
		return s
	}
	kept := s[:most-utf8.RuneLen(cut)]
	if utf8.ValidString(kept) {
		return clip(kept+string(cut), most)
	}
	return kept + string(cut)
}

// wireRow is a row as JSON: what ParseRow decodes before it compares the bytes.
type wireRow struct {
	Seq        int64             `json:"seq"`
	Time       string            `json:"time"`
	Kind       Kind              `json:"kind"`
	Actor      string            `json:"actor"`
	Proof      string            `json:"proof"`
	UID        *int              `json:"uid"`
	Capability string            `json:"capability"`
	Subject    string            `json:"subject"`
	SubjectB64 []byte            `json:"subject_b64"`
	Run        string            `json:"run"`
	Decision   string            `json:"decision"`
	Fault      string            `json:"fault"`
	Rule       string            `json:"rule"`
	Of         *int64            `json:"of"`
	Digests    map[string]string `json:"digests"`
	Change     string            `json:"change"`
	Target     string            `json:"target"`
	State      string            `json:"state"`
	Opening    *Opening          `json:"open"`
}

// ParseRow reads what [Row.Line] writes, and nothing else: another order of keys, a
// space, another escape of the same character, a text beyond its bound are faults of the
// kind invalid.
func ParseRow(line []byte) (Row, error) {
	if len(line) > LargestRow {
		return Row{}, fault.New(fault.Invalid, "a row of %d bytes is larger than %d", len(line), LargestRow)
	}
	var w wireRow
	if err := json.Unmarshal(line, &w); err != nil {
		return Row{}, fault.New(fault.Invalid, "it is not a row: %w", err)
	}
	at, err := time.Parse(timeLayout, w.Time)
	if err != nil {
		return Row{}, fault.New(fault.Invalid, "its time %.40q is not of the form %s", w.Time, timeLayout)
	}
	subject := w.Subject
	if subject == "" {
		subject = string(w.SubjectB64)
	}
	r, err := newRow(w.Seq, at, Entry{
		Kind: w.Kind, Actor: w.Actor, Proof: w.Proof, UID: w.UID,
		Capability: w.Capability, Subject: subject, Run: w.Run,
		Decision: w.Decision, Fault: w.Fault, Rule: w.Rule, Of: w.Of, Digests: w.Digests,
		Change: w.Change, Target: w.Target, State: w.State, Opening: w.Opening,
	})
	if err != nil {
		return Row{}, fault.New(fault.Invalid, "%w", err)
	}
	if !bytes.Equal(r.Line(), line) {
		return Row{}, fault.New(fault.Invalid, "it is not spelled as rows are")
	}
	return r, nil
}
