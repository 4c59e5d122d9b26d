package ledger_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"tendril/fault"
	"tendril/ledger"
)

const origin = "tendril/00112233445566778899aabbccddeeff"

func newKey(t testing.TB) ledger.Key {
	t.Helper()
	key, _, err := ledger.NewKey(origin)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func newRow(t testing.TB, seq int64, e ledger.Entry) ledger.Row {
	t.Helper()
	r, err := ledger.NewRow(seq, time.Date(2026, 11, 29, 8, 0, int(seq%60), 250e6, time.UTC), e)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

const digest = "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"

// history is what a site could have recorded: permits, denials, outcomes and changes.
func history(key ledger.Key) []ledger.Entry {
	entries := []ledger.Entry{{Kind: ledger.Open, Opening: key.Opening()}}
	for i := range int64(8) {
		id := "r-01kb000000000000000000000" + string("0123456789"[i])
		of := int64(len(entries))
		entries = append(entries,
			ledger.Entry{Kind: ledger.Decision, Actor: "ci-docs", Proof: ledger.ByToken, UID: new(1001), Capability: "sprout.grow",
				Subject: "handbook", Decision: ledger.Permit, Rule: "grant 1 of grants.yaml",
				Digests: map[string]string{"input": digest, "grant": digest}},
			ledger.Entry{Kind: ledger.Change, Actor: "ci-docs", Proof: ledger.ByToken, Run: id, Of: &of, Change: "run.created", State: "queued"},
			ledger.Entry{Kind: ledger.Decision, Proof: ledger.ByNothing, UID: new(33), Capability: "pollen.issue\n\x1b[2J",
				Subject: "/srv/b\xfccher", Decision: ledger.Deny, Fault: "denied", Rule: `nobody proved who he is: "token" was revoked`},
			ledger.Entry{Kind: ledger.Change, Actor: "ci-docs", Proof: ledger.ByToken, Run: id, Of: &of, Change: "run.ended", State: "fruited",
				Digests: map[string]string{"fruit": "gitCommit:da39a3ee5e6b4b0d3255bfef95601890afd80709"}},
			ledger.Entry{Kind: ledger.Outcome, Actor: "ci-docs", Proof: ledger.ByToken, Capability: "sprout.grow", Subject: "/src/Überblick 🌱", Run: id, Of: &of, State: "done"},
		)
	}
	return entries
}

func rowsOf(t testing.TB, entries []ledger.Entry) []ledger.Row {
	t.Helper()
	rows := make([]ledger.Row, len(entries))
	for i, e := range entries {
		rows[i] = newRow(t, int64(i), e)
	}
	return rows
}

func TestTheFormOfARow(t *testing.T) {
	of := int64(6)
	for _, test := range []struct {
		row  ledger.Row
		want string
	}{
		{newRow(t, 7, ledger.Entry{
			Kind: ledger.Outcome, Actor: "ci-docs", Proof: ledger.ByToken, UID: new(0), Capability: "a\"\\\x00\x7f", Subject: "ü🌱<&>\u2028",
			Run: "r-1", Fault: "denied", Rule: "none", Of: &of, Digests: map[string]string{"b": digest, "a": digest}, Target: "t", State: "failed",
		}), `{"seq":7,"time":"2026-11-29T08:00:07.250Z","kind":"outcome","actor":"ci-docs","proof":"token","uid":0,` +
			`"capability":"a\"\\\u0000\u007f","subject":"\u00fc\ud83c\udf31<&>\u2028","subject_b64":null,"run":"r-1",` +
			`"decision":null,"fault":"denied","rule":"none","of":6,"digests":{"a":"` + digest + `","b":"` + digest + `"},` +
			`"change":null,"target":"t","state":"failed","open":null}`},
		{newRow(t, 0, ledger.Entry{Kind: ledger.Open, Opening: &ledger.Opening{
			Format: 1, Origin: "PeterNeumann", Key: "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW",
		}}), `{"seq":0,"time":"2026-11-29T08:00:00.250Z","kind":"open","actor":null,"proof":null,"uid":null,` +
			`"capability":null,"subject":null,"subject_b64":null,"run":null,"decision":null,"fault":null,"rule":null,"of":null,` +
			`"digests":null,"change":null,"target":null,"state":null,"open":{"format":1,"origin":"PeterNeumann",` +
			`"key":"PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW"}}`},
	} {
		if diff := cmp.Diff(test.want, string(test.row.Line())); diff != "" {
			t.Error(diff)
		}
	}
}

// TestALineIsWhatAnyJSONReaderReads compares rows of any content with what
// encoding/json makes of their lines, and with what ParseRow does.
func TestALineIsWhatAnyJSONReaderReads(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		// Bytes and not text: a caller's capability and subject are whatever arrived.
		text := rapid.OneOf(rapid.String(), rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) }))
		of := rapid.Int64Range(1, 99).Draw(t, "of")
		e := ledger.Entry{
			Kind: ledger.Change, Actor: "ann", Proof: ledger.ByPeer, UID: new(rapid.IntRange(0, math.MaxUint32).Draw(t, "uid")),
			Capability: text.Draw(t, "capability"), Subject: text.Draw(t, "subject"), Run: text.Draw(t, "run"),
			Fault: text.Draw(t, "fault"), Rule: text.Draw(t, "rule"), Of: &of,
			Digests: rapid.MapOfN(rapid.StringMatching(`[a-z0-9.-]{1,32}`), rapid.StringMatching(`sha256:[0-9a-f]{64}`), 0, 16).Draw(t, "digests"),
			Change:  "x" + text.Draw(t, "change"), Target: text.Draw(t, "target"), State: text.Draw(t, "state"),
		}
		at := time.UnixMilli(rapid.Int64Range(0, 1<<42).Draw(t, "time"))
		row, err := ledger.NewRow(rapid.Int64Range(100, math.MaxInt64).Draw(t, "seq"), at, e)
		if err != nil {
			t.Fatal(err)
		}
		line := row.Line()
		if len(line) > ledger.LargestRow {
			t.Fatalf("%d bytes", len(line))
		}
		for _, c := range line {
			if c < ' ' || c > '~' {
				t.Fatalf("%q holds %q", line, c)
			}
		}
		var read map[string]any
		if err := json.Unmarshal(line, &read); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if len(read) != 19 {
			t.Fatalf("%d keys in %s", len(read), line)
		}
		subject, _ := read["subject"].(string)
		if encoded, ok := read["subject_b64"].(string); ok {
			raw, err := base64.StdEncoding.DecodeString(encoded)
			if err != nil || utf8.Valid(raw) {
				t.Fatalf("subject_b64 of %s: %v", line, err)
			}
			subject = string(raw)
		}
		for key, want := range map[string]string{
			"subject": row.Subject, "capability": row.Capability, "run": row.Run, "fault": row.Fault,
			"rule": row.Rule, "change": row.Change, "target": row.Target, "state": row.State,
		} {
			got, _ := read[key].(string)
			if key == "subject" {
				got = subject
			}
			if got != want {
				t.Fatalf("%s is %q, want %q", key, got, want)
			}
		}
		parsed, err := ledger.ParseRow(line)
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if !bytes.Equal(parsed.Line(), line) || !parsed.Time.Equal(at) {
			t.Fatalf("%s came back as %s", line, parsed.Line())
		}
		if len(e.Subject) <= 500 && row.Subject != e.Subject {
			t.Fatalf("the subject %q became %q", e.Subject, row.Subject)
		}
	})
}

// TestTheLongestRowFits fills every field with as much as it takes, of what takes the
// most room, and finds each cut where a reader sees it.
func TestTheLongestRowFits(t *testing.T) {
	digests := map[string]string{}
	for i := range 16 {
		digests[strings.Repeat(string(rune('a'+i)), 32)] = "gitCommit:" + strings.Repeat("0", 64)
	}
	of := int64(math.MaxInt64 - 1)
	const much = 100_000
	for name, subject := range map[string]string{
		"control characters":     strings.Repeat("\x01", much),
		"beyond the first plane": strings.Repeat("🌱", much),
		"ASCII":                  strings.Repeat("a", much),
		"no UTF-8":               strings.Repeat("\xff", much),
		"no UTF-8 at the end":    strings.Repeat("a", much) + "\xff",
		"no UTF-8 at the cut":    strings.Repeat("ü", 1534) + "\xff" + strings.Repeat("ü", much),
	} {
		text := strings.Repeat("\x01", much)
		e := ledger.Entry{
			Kind: ledger.Change, Actor: strings.Repeat("a", 63), Proof: ledger.ByProcess, UID: new(math.MaxInt64),
			Capability: text, Subject: subject, Run: text, Fault: text, Rule: text, Of: &of, Digests: digests,
			Change: text, Target: text, State: text,
		}
		row := newRow(t, math.MaxInt64, e)
		line := row.Line()
		if len(line) > ledger.LargestRow {
			t.Errorf("%s: %d bytes", name, len(line))
		}
		if _, err := ledger.ParseRow(line); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for field, value := range map[string]string{"capability": row.Capability, "subject": row.Subject, "run": row.Run,
			"fault": row.Fault, "rule": row.Rule, "change": row.Change, "target": row.Target, "state": row.State} {
			if !strings.HasSuffix(value, "…") || len(value) > much/10 {
				t.Errorf("%s: the cut of %s does not show: %q", name, field, value)
			}
		}
		if kept := strings.TrimSuffix(row.Subject, "…"); !strings.HasPrefix(subject, kept) || len(kept) < 200 {
			t.Errorf("%s: %d bytes of the subject are left", name, len(kept))
		}
	}
	opening := ledger.Entry{Kind: ledger.Open, Opening: newKey(t).Opening(), Subject: strings.Repeat("\xff", much), Rule: strings.Repeat("\x01", much), Digests: digests}
	if line := newRow(t, 0, opening).Line(); len(line) > ledger.LargestRow {
		t.Errorf("the first row has %d bytes", len(line))
	}
}

// TestNothingIsCutThatFits: the bounds are where they are said to be.
func TestNothingIsCutThatFits(t *testing.T) {
	for bound, set := range map[int]func(*ledger.Entry, string){
		64:   func(e *ledger.Entry, s string) { e.Capability = s },
		3072: func(e *ledger.Entry, s string) { e.Subject = s },
		512:  func(e *ledger.Entry, s string) { e.Rule = s },
		256:  func(e *ledger.Entry, s string) { e.Target = s },
	} {
		var whole, over ledger.Entry
		whole = ledger.Entry{Kind: ledger.Decision, Proof: ledger.ByNothing, Decision: ledger.Deny}
		over = whole
		set(&whole, strings.Repeat("a", bound))
		set(&over, strings.Repeat("a", bound+1))
		if row := newRow(t, 1, whole); cmp.Diff(whole, row.Entry) != "" {
			t.Errorf("%d: %s", bound, row.Line())
		}
		if row := newRow(t, 1, over); !strings.Contains(string(row.Line()), strings.Repeat("a", bound-6)+`\u2026"`) {
			t.Errorf("%d: %s", bound, row.Line())
		}
	}
}

func TestNewRowRefuses(t *testing.T) {
	key := newKey(t)
	good := ledger.Entry{Kind: ledger.Decision, Actor: "ann", Proof: ledger.ByPeer, Decision: ledger.Permit}
	with := func(change func(*ledger.Entry)) ledger.Entry { e := good; change(&e); return e }
	if _, err := ledger.NewRow(1, time.Now(), good); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name string
		seq  int64
		e    ledger.Entry
	}{
		{"a negative number", -1, good},
		{"no kind", 1, with(func(e *ledger.Entry) { e.Kind = "" })},
		{"an unknown kind", 1, with(func(e *ledger.Entry) { e.Kind = "note" })},
		{"a first row that does not open", 0, good},
		{"an opening later", 1, ledger.Entry{Kind: ledger.Open, Opening: key.Opening()}},
		{"an opening without what it says", 0, ledger.Entry{Kind: ledger.Open}},
		{"an opening in another row", 1, with(func(e *ledger.Entry) { e.Opening = key.Opening() })},
		{"an opening of another format", 0, ledger.Entry{Kind: ledger.Open, Opening: &ledger.Opening{Format: 2, Origin: origin, Key: key.Verifier()}}},
		{"an opening with the key of another", 0, ledger.Entry{Kind: ledger.Open, Opening: &ledger.Opening{Format: 1, Origin: "tendril/other", Key: key.Verifier()}}},
		{"an opening without a key", 0, ledger.Entry{Kind: ledger.Open, Opening: &ledger.Opening{Format: 1, Origin: origin}}},
		{"a decision that decides nothing", 1, with(func(e *ledger.Entry) { e.Decision = "" })},
		{"a decision between", 1, with(func(e *ledger.Entry) { e.Decision = "maybe" })},
		{"a decision without a proof", 1, with(func(e *ledger.Entry) { e.Proof = "" })},
		{"an unknown proof", 1, with(func(e *ledger.Entry) { e.Proof = "header" })},
		{"an actor with another spelling", 1, with(func(e *ledger.Entry) { e.Actor = "Ann" })},
		{"a negative uid", 1, with(func(e *ledger.Entry) { e.UID = new(-1) })},
		{"an outcome of nothing", 5, ledger.Entry{Kind: ledger.Outcome}},
		{"an outcome that decides", 5, ledger.Entry{Kind: ledger.Outcome, Of: new(int64(1)), Decision: ledger.Permit}},
		{"an outcome of itself", 5, ledger.Entry{Kind: ledger.Outcome, Of: new(int64(5))}},
		{"an outcome of the first row", 5, ledger.Entry{Kind: ledger.Outcome, Of: new(int64(0))}},
		{"a change of nothing", 5, ledger.Entry{Kind: ledger.Change}},
		{"a decision that changes", 5, with(func(e *ledger.Entry) { e.Change = "run.ended" })},
		{"a digest that is none", 1, with(func(e *ledger.Entry) { e.Digests = map[string]string{"input": "secret"} })},
		{"a digest that is too short", 1, with(func(e *ledger.Entry) { e.Digests = map[string]string{"input": "sha256:00"} })},
		{"a digest in upper case", 1, with(func(e *ledger.Entry) { e.Digests = map[string]string{"input": strings.ToUpper(digest)} })},
		{"a digest of an unknown kind", 1, with(func(e *ledger.Entry) { e.Digests = map[string]string{"input": "md5:" + strings.Repeat("0", 64)} })},
		{"a digest without a name", 1, with(func(e *ledger.Entry) { e.Digests = map[string]string{"": digest} })},
		{"a digest with a long name", 1, with(func(e *ledger.Entry) { e.Digests = map[string]string{strings.Repeat("a", 33): digest} })},
		{"a digest with a text as name", 1, with(func(e *ledger.Entry) { e.Digests = map[string]string{"A b": digest} })},
	} {
		if row, err := ledger.NewRow(test.seq, time.Now(), test.e); err == nil {
			t.Errorf("%s was taken: %s", test.name, row.Line())
		}
		if test.seq > 0 && ledger.CheckEntry(test.e) == nil && !strings.HasSuffix(test.name, "of itself") {
			t.Errorf("%s passed the check", test.name)
		}
	}
	for _, at := range []time.Time{time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(-1, 1, 1, 0, 0, 0, 0, time.UTC)} {
		if _, err := ledger.NewRow(1, at, good); err == nil {
			t.Errorf("%s was taken", at)
		}
	}
}

// TestParseRowTakesOneSpelling changes the spelling of a row and not what it says.
func TestParseRowTakesOneSpelling(t *testing.T) {
	line := string(newRow(t, 7, ledger.Entry{Kind: ledger.Outcome, Capability: "run.get", Subject: "ü", Run: "r", Of: new(int64(6)), Digests: map[string]string{"a": digest, "b": digest}}).Line())
	if _, err := ledger.ParseRow([]byte(line)); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string][2]string{
		"a space":                  {`{"seq":7,`, `{"seq": 7,`},
		"a space at the end":       {`"open":null}`, `"open":null} `},
		"something after it":       {`"open":null}`, `"open":null}{}`},
		"a newline":                {`"open":null}`, "\"open\":null}\n"},
		"another order":            {`"capability":"run.get","subject":"\u00fc"`, `"subject":"\u00fc","capability":"run.get"`},
		"another order of digests": {`{"a":"` + digest + `","b":"` + digest + `"}`, `{"b":"` + digest + `","a":"` + digest + `"}`},
		"a key twice":              {`"run":"r"`, `"run":"x","run":"r"`},
		"a key in another case":    {`"run":"r"`, `"Run":"r"`},
		"an unknown key":           {`"run":"r"`, `"run":"r","why":null`},
		"a missing key":            {`"uid":null,`, ``},
		"an escape less":           {`\u00fc`, `ü`},
		"an escape more":           {`run.get`, `run\u002eget`},
		"an escape in upper case":  {`\u00fc`, `\u00FC`},
		"a slash that is escaped":  {`run.get`, `run\/get`},
		"a lone surrogate":         {`\u00fc`, `\ud800`},
		"an empty text":            {`"fault":null`, `"fault":""`},
		"empty digests":            {`"digests":{"a":"` + digest + `","b":"` + digest + `"}`, `"digests":{}`},
		"text in base64":           {`"subject":"\u00fc","subject_b64":null`, `"subject":null,"subject_b64":"w7w="`},
		"base64 beside text":       {`"subject_b64":null`, `"subject_b64":"/w=="`},
		"bits in the padding":      {`"subject":"\u00fc","subject_b64":null`, `"subject":null,"subject_b64":"/x=="`},
		"a number as a float":      {`"seq":7`, `"seq":7.0`},
		"a leading zero":           {`"of":6`, `"of":06`},
		"a number as text":         {`"seq":7`, `"seq":"7"`},
		"a time of another zone":   {`.250Z`, `.250+00:00`},
		"a time with more digits":  {`.250Z`, `.2500Z`},
		"a time with a comma":      {`.250Z`, `,250Z`},
		"a time with less":         {`.250Z`, `Z`},
		"a text beyond its bound":  {`run.get`, strings.Repeat("a", 65)},
		"a list":                   {`"fault":null`, `"fault":[]`},
	} {
		changed := strings.Replace(line, change[0], change[1], 1)
		if changed == line {
			t.Errorf("%s: nothing was changed", name)
		}
		if row, err := ledger.ParseRow([]byte(changed)); !fault.Is(err, fault.Invalid) {
			t.Errorf("%s was taken as %s (%v)", name, row.Line(), err)
		}
	}
	for _, whole := range []string{"", "null", "[]", "{}", "7", line + line, "\xff", strings.Repeat(" ", ledger.LargestRow) + line} {
		if _, err := ledger.ParseRow([]byte(whole)); !fault.Is(err, fault.Invalid) {
			t.Errorf("%.60q: %v", whole, err)
		}
	}
	if _, err := ledger.ParseRow([]byte(line + strings.Repeat(" ", ledger.LargestRow))); err == nil || !strings.Contains(err.Error(), "larger than") {
		t.Errorf("a row that is too large: %v", err)
	}
	base64ed := string(newRow(t, 7, ledger.Entry{Kind: ledger.Change, Change: "x", Subject: "\xff"}).Line())
	if changed := strings.Replace(base64ed, `"/w=="`, `"/x=="`, 1); changed == base64ed {
		t.Errorf("the padding was not changed: %s", base64ed)
	} else if _, err := ledger.ParseRow([]byte(changed)); err == nil {
		t.Errorf("bits in the padding were taken")
	}
}

func FuzzParseRow(f *testing.F) {
	for _, row := range rowsOf(f, history(newKey(f))[:6]) {
		f.Add(row.Line())
	}
	f.Add([]byte(`{}`))
	f.Add([]byte(`{"seq":1e9,"time":"2026-11-29T08:00:07.250Z"}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		row, err := ledger.ParseRow(line)
		if err != nil {
			if !fault.Is(err, fault.Invalid) {
				t.Errorf("%q: %v", line, err)
			}
			return
		}
		if !bytes.Equal(row.Line(), line) {
			t.Errorf("%q became %q", line, row.Line())
		}
		if bytes.ContainsFunc(line, func(c rune) bool { return c < ' ' || c > '~' }) {
			t.Errorf("%q is not printable", line)
		}
	})
}
