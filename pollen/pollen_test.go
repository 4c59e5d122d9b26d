package pollen

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"tendril/fault"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func issue(t testing.TB, uid *int, ttl time.Duration) Record {
	t.Helper()
	record, _, err := Issue("ci-docs", uid, noon, ttl)
	if err != nil {
		t.Fatal(err)
	}
	return record
}

func TestParseName(t *testing.T) {
	for _, name := range []string{"ci-docs", "a", "7", "roots", "my-root", "botanist-2", strings.Repeat("x", 63)} {
		if got, err := ParseName(name); err != nil || string(got) != name {
			t.Errorf("%q: %q, %v", name, got, err)
		}
	}
	for _, name := range []string{
		"", "-a", "a-", "a--b", "a/b", "a.b", "a_b", "a b", "A", "a\n", "a\x00", strings.Repeat("x", 64),
		"botanist", "stem", "nobody", "root",
		// what could be taken for another name: by an eye, a terminal or a file system
		"botani\u0455t", "\u0440oot", "ro\u03bft", "r\u043e\u043et", "ste\u1d0d", "\uff52oot", "root\u200b", "\u2060root", "ro\u00adot",
		"\u202etoor", "ci\u2010docs", "ci\u2011docs", "ci\u2212docs", "ci\u2013docs", "\u212aey", "\u0131d", "\u017ftem", "r\u00f6ot", "ro\u0308ot",
		"\U0001d42b\U0001d428\U0001d428\U0001d42d", "\u0661", "\u00b2", "\ufb01", "\xffroot", "root\xed\xa0\x80",
	} {
		got, err := ParseName(name)
		if !fault.Is(err, fault.Invalid) || got != "" {
			t.Errorf("%q: %q, %v", name, got, err)
		}
		into := Name("kept")
		if err := into.UnmarshalText([]byte(name)); err == nil || into != "kept" {
			t.Errorf("%q: UnmarshalText made %q of it", name, into)
		}
	}
}

func FuzzParseName(f *testing.F) {
	for _, seed := range []string{"ci-docs", "botanist", "a/b", "A", "\u0430", "a--b", "\xff"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		name, err := ParseName(s)
		if err != nil {
			if !fault.Is(err, fault.Invalid) || name != "" {
				t.Errorf("%q: %q, %v", s, name, err)
			}
			return
		}
		if string(name) != s || len(s) > 63 || strings.ToLower(s) != s || strings.Contains(s, "--") || name == Botanist {
			t.Errorf("%q became %q", s, name)
		}
	})
}

func TestIssue(t *testing.T) {
	uid := 1000
	record, token, err := Issue("ci-docs", &uid, noon.Add(1234567).In(time.FixedZone("", 3600)), DefaultTTL)
	if err != nil {
		t.Fatal(err)
	}
	want := Record{
		Name: "ci-docs", UID: new(1000), Issued: noon.Add(time.Millisecond),
		Expires: noon.Add(time.Millisecond + DefaultTTL), Digest: token.Digest(),
	}
	if diff := cmp.Diff(want, record); diff != "" {
		t.Error(diff)
	}
	if uid = 7; *record.UID != 1000 {
		t.Error("the record shares the caller's uid")
	}
	text, err := json.Marshal(record)
	if err != nil {
		t.Fatal(err)
	}
	const wire = `{"id":0,"name":"ci-docs","uid":1000,"issued":"2026-03-01T12:00:00.001Z","expires":"2026-05-30T12:00:00.001Z","rotated":null,"revoked":null}`
	if string(text) != wire {
		t.Errorf("got %s", text)
	}
}

func TestIssueRefuses(t *testing.T) {
	for _, test := range []struct {
		what string
		name Name
		uid  *int
		ttl  time.Duration
	}{
		{"a name in another form", "CI", nil, time.Hour},
		{"a reserved name", Botanist, nil, time.Hour},
		{"no time", "a", nil, 0},
		{"less than no time", "a", nil, -time.Hour},
		{"a moment", "a", nil, time.Minute - 1},
		{"for ever", "a", nil, MostTTL + 1},
		{"a negative uid", "a", new(-1), time.Hour},
		{"the uid that is none", "a", new(1<<32 - 1), time.Hour},
	} {
		record, token, err := Issue(test.name, test.uid, noon, test.ttl)
		if !fault.Is(err, fault.Invalid) || record != (Record{}) || token.Reveal() != "" {
			t.Errorf("%s: %v, %v", test.what, record, err)
		}
	}
	for _, ttl := range []time.Duration{LeastTTL, MostTTL} {
		if _, _, err := Issue("a", new(1<<32-2), noon, ttl); err != nil {
			t.Errorf("%v: %v", ttl, err)
		}
	}
}

func TestCheck(t *testing.T) {
	bound, free := issue(t, new(1000), time.Hour), issue(t, nil, time.Hour)
	revoked, err := free.Revoke(noon)
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name   string
		record Record
		at     time.Duration
		uid    *int
		want   string // "" if it is good
	}{
		{"free, without a uid", free, 0, nil, ""},
		{"free, with any uid", free, 0, new(7), ""},
		{"free, at its last instant", free, time.Hour - 1, nil, ""},
		{"free, at its end", free, time.Hour, nil, "Pollen ci-docs expired at 2026-03-01T13:00:00Z"},
		{"bound, with its uid", bound, 0, new(1000), ""},
		{"bound, with root", bound, 0, new(0), "Pollen ci-docs is bound to uid 1000, and uid 0 presents it"},
		{"bound, without a uid", bound, 0, nil, "Pollen ci-docs is bound to uid 1000, and nothing proves the uid of who presents it"},
		{"bound, at its end", bound, time.Hour, new(1000), "Pollen ci-docs expired at 2026-03-01T13:00:00Z"},
		{"revoked", revoked, 0, nil, "Pollen ci-docs was revoked at 2026-03-01T12:00:00Z"},
		{"revoked, before it was", revoked, -time.Hour, nil, "Pollen ci-docs was revoked at 2026-03-01T12:00:00Z"},
		{"nothing", Record{}, 0, nil, "Pollen  expired at 0001-01-01T00:00:00Z"},
	} {
		err := test.record.Check(noon.Add(test.at), test.uid)
		if test.want == "" {
			if err != nil {
				t.Errorf("%s: %v", test.name, err)
			}
			continue
		}
		var f *fault.Error
		if !errors.As(err, &f) || f.Kind != fault.Denied || f.Detail != test.want || f.Rule == "" || f.Hint == "" {
			t.Errorf("%s: %#v", test.name, err)
		}
	}
}

func TestRotate(t *testing.T) {
	first := issue(t, new(1000), time.Hour)
	second, token, err := first.Rotate(noon.Add(3 * time.Hour)) // it has expired meanwhile
	if err != nil {
		t.Fatal(err)
	}
	want := first
	want.Rotated, want.Expires, want.Digest = new(noon.Add(3*time.Hour)), noon.Add(4*time.Hour), token.Digest()
	if diff := cmp.Diff(want, second); diff != "" {
		t.Error(diff)
	}
	if second.Digest.Equal(first.Digest) {
		t.Error("the token is the same")
	}
	third, _, err := second.Rotate(noon.Add(3*time.Hour + time.Minute))
	if err != nil || !third.Expires.Equal(noon.Add(4*time.Hour+time.Minute)) {
		t.Errorf("expires %v, %v", third.Expires, err)
	}
	revoked, err := third.Revoke(noon.Add(5 * time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := revoked.Rotate(noon); !fault.Is(err, fault.Invalid) {
		t.Errorf("a revoked Pollen got another token: %v", err)
	}
	if _, err := revoked.Revoke(noon); !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "2026-03-01T17:00:00Z") {
		t.Errorf("revoked twice: %v", err)
	}
}

// Nothing that happens to a Pollen makes it good for longer than its life, for
// another uid, or again after its end.
func TestNothingReturnsFromRevocation(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ttl := time.Duration(rapid.Int64Range(int64(LeastTTL), int64(MostTTL)).Draw(t, "ttl")).Truncate(time.Millisecond)
		record, _, err := Issue("a", new(7), noon, ttl)
		if err != nil {
			t.Fatal(err)
		}
		now, from := noon, noon
		for _, step := range rapid.SliceOfN(rapid.IntRange(0, 2), 0, 8).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.Int64Range(0, int64(ttl)).Draw(t, "wait"))).Truncate(time.Millisecond)
			gone := record.Revoked != nil
			var next Record
			switch step {
			case 0:
				next, _, err = record.Rotate(now)
			case 1:
				next, err = record.Revoke(now)
			default:
				next, err = record, nil
			}
			if gone && step < 2 && err == nil {
				t.Fatal("something was done with a revoked Pollen")
			}
			if err == nil {
				if step == 0 {
					from = now
				}
				record = next
			}
			good := record.Revoked == nil && now.Before(from.Add(ttl))
			if (record.Check(now, new(7)) == nil) != good {
				t.Fatalf("good = %v: %v", good, record.Check(now, new(7)))
			}
			if record.Check(now, new(8)) == nil || record.Check(now, nil) == nil {
				t.Fatal("another uid presented it")
			}
		}
	})
}
