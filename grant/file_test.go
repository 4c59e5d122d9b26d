package grant

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"tendril/capability"
	"tendril/destination"
	"tendril/fault"
)

const example = `version: 1
grants:
  # the pages of the handbook
  - pollen: ci-docs
    substrates: [handbook]
    classes: [sprout.grow, run.get, run.logs]
    providers: [runsc, gvisor]
    provider: gvisor
    egress:
      - host: api.example.com
      - host: "*.example.org"
        methods: [GET, HEAD, POST]
        paths: [/v2/*]
      - host: vpn.example.com
        methods: any
    credentials: [model-api]
    limits: {cpus: 2, memory: 4GiB, pids: 512, disk: 10GiB, wall: 1h, tokens: 2000000, spend: 5.00 USD}
    daily: {runs: 20, tokens: 9000000, spend: 20 USD}
    runs: substrate
    expires: 2027-06-30
  - pollen: botanist
    substrates: [handbook, site]
    classes: [stoma.pass]
`

func TestParse(t *testing.T) {
	got, err := Parse(FileName, []byte(example))
	if err != nil {
		t.Fatal(err)
	}
	pattern := func(text string) (p destination.Pattern) {
		if err := p.UnmarshalText([]byte(text)); err != nil {
			t.Fatal(err)
		}
		return p
	}
	expires := Expiry(time.Date(2027, 6, 30, 0, 0, 0, 0, time.UTC))
	want := File{Version: 1, Grants: []Grant{{
		Line: 4, Pollen: "ci-docs", Substrates: Set[SubstrateName]{"handbook"}, Classes: Set[Class]{"sprout.grow", "run.get", "run.logs"},
		Providers: Set[Provider]{"runsc", "gvisor"}, Provider: "gvisor",
		Egress: Egress{
			{Host: pattern("api.example.com")},
			{Host: pattern("*.example.org"), Methods: destination.Methods{"GET", "HEAD", "POST"}, Paths: []destination.PathPattern{"/v2/*"}},
			{Host: pattern("vpn.example.com"), Methods: destination.Methods{"any"}},
		},
		Credentials: Set[CredentialName]{"model-api"},
		Limits: Limits{
			Limits: capability.Limits{
				CPUs: new(2.0), Memory: new(capability.Bytes(4 << 30)), Pids: new(512),
				Disk: new(capability.Bytes(10 << 30)), Wall: new(capability.Duration(time.Hour)),
			},
			Tokens: new(Count(2_000_000)), Spend: new(Money(5_000_000)),
		},
		Daily: Daily{Runs: new(Count(20)), Tokens: new(Count(9_000_000)), Spend: new(Money(20_000_000))},
		Runs:  SubstrateRuns, Expires: &expires,
	}, {
		Line: 21, Pollen: "botanist", Substrates: Set[SubstrateName]{"handbook", "site"}, Classes: Set[Class]{"stoma.pass"},
	}}}
	compare := cmp.Options{cmp.Comparer(func(a, b destination.Pattern) bool { return a == b }), cmp.Comparer(func(a, b Expiry) bool { return a == b }), cmpopts.EquateComparable()}
	if diff := cmp.Diff(want, got, compare); diff != "" {
		t.Error(diff)
	}
}

// grantWith is a file of one grant in which the lines stand for its own with the same key.
func grantWith(lines ...string) string {
	file := []string{"pollen: ci-docs", "substrates: [handbook]", "classes: [run.get]"}
	for _, line := range lines {
		key, value, _ := strings.Cut(line, ":")
		for i, own := range file {
			if strings.HasPrefix(own, key+":") {
				file[i], line = line, ""
			}
		}
		if strings.TrimSpace(line) != "" && value != "" {
			file = append(file, line)
		}
	}
	return "version: 1\ngrants:\n  - " + strings.Join(file, "\n    ") + "\n"
}

func TestParseRefuses(t *testing.T) {
	for _, test := range []struct{ name, file, want, hint string }{
		{"no pollen", "version: 1\ngrants:\n  - substrates: [a]\n    classes: [run.get]\n", "3: grants: the grant has no pollen", "to which Pollen"},
		{"no substrates", "version: 1\ngrants:\n  - pollen: a\n    classes: [run.get]\n", "3: grants: the grant has no substrates", ""},
		{"no classes", "version: 1\ngrants:\n\n  - pollen: a\n    substrates: [b]\n", "4: grants: the grant has no classes", ""},
		{"nobody's name", grantWith("pollen: nobody"), "3: pollen: nobody is reserved and cannot be issued", ""},
		{"a Pollen in upper case", grantWith("pollen: CI-docs"), `3: pollen: "CI-docs" is not the name of a Pollen`, `did you mean "ci-docs"?`},
		{"every Pollen", grantWith(`pollen: "*"`), `3: pollen: "*" would also permit what does not exist yet`, "name each Pollen"},
		{"a name with a slash", grantWith("substrates: [ci/docs]"), `4: substrates: "ci/docs" is not the name of a Substrate`, `did you mean "ci-docs"?`},
		{"every Substrate", grantWith(`substrates: ["*"]`), `4: substrates: "*" would also permit what does not exist yet`, "name each Substrate that is meant"},
		{"Substrates by their beginning", grantWith(`substrates: [docs-*]`), `4: substrates: "docs-*" would also permit what does not exist yet`, ""},
		{"a Substrate twice", grantWith("substrates: [a, b, a]"), `4: substrates: "a" comes twice`, "remove one"},
		{"no Substrate", grantWith("substrates: []"), "4: substrates: the list is empty", "name something, or remove the key"},
		{"a path for a Substrate", grantWith("substrates: [/srv/handbook]"), `4: substrates: "/srv/handbook" is not the name of a Substrate`, ""},
		{"no class", grantWith("classes: []"), "5: classes: the list is empty", ""},
		{"a class twice", grantWith("classes: [run.get, run.get]"), `5: classes: "run.get" comes twice`, ""},
		{"a misspelt class", grantWith("classes: [run.gte]"), `5: classes: there is no class "run.gte"`, `did you mean "run.get"?`},
		{"a class in upper case", grantWith("classes: [Run.Get]"), `5: classes: there is no class "Run.Get"`, `did you mean "run.get"?`},
		{"a class as on the command line", grantWith("classes: [run get]"), `5: classes: there is no class "run get"`, `did you mean "run.get"?`},
		{"a class nobody knows", grantWith("classes: [everything]"), `5: classes: there is no class "everything"`, "classes are run.list, "},
		{"a Branch", grantWith("classes: [observe]"), `5: classes: there is no class "observe"`, "a Branch cannot be granted whole; its classes are run.list"},
		{"every class", grantWith(`classes: ["*"]`), `5: classes: "*" would also permit what does not exist yet`, ""},
		{"a Branch's classes", grantWith(`classes: [run.*]`), `5: classes: "run.*" would also permit what does not exist yet`, "name each class"},
		{"a wall nobody knows", grantWith("providers: [podman]"), `6: providers: there is no provider "podman"`, "providers are gvisor, runsc, docker, firecracker, qemu, host"},
		{"a misspelt wall", grantWith("providers: [runcs]"), `6: providers: there is no provider "runcs"`, `did you mean "runsc"?`},
		{"no wall", grantWith("providers: []"), "6: providers: the list is empty", ""},
		{"a default wall outside", grantWith("providers: [runsc]", "provider: docker"), "3: grants: the provider docker is not one of the grant's providers", "add it to `providers`"},
		{"the host by default", grantWith("provider: host"), "3: grants: the provider host is not one of the grant's providers", ""},
		{"no egress", grantWith("egress: []"), "6: egress: the list is empty", ""},
		{"egress everywhere", grantWith(`egress: [{host: "*"}]`), `6: host: the host "*" holds a * elsewhere than in front`, ""},
		{"no credential", grantWith("credentials: []"), "6: credentials: the list is empty", ""},
		{"every credential", grantWith(`credentials: ["*"]`), `6: credentials: "*" would also permit what does not exist yet`, ""},
		{"no memory", grantWith("limits: {memory: 0}"), "6: limits: the memory limit of 0B is out of range", ""},
		{"no tokens", grantWith("limits: {tokens: 0}"), "6: tokens: 0 is not a limit", "at least 1"},
		{"fewer than no tokens", grantWith("limits: {tokens: -1}"), "6: tokens: -1 is not a limit", ""},
		{"half a token", grantWith("limits: {tokens: 1.5}"), `6: the value of "tokens" is not a whole number in digits`, ""},
		{"no money", grantWith("limits: {spend: 0 USD}"), `6: spend: "0 USD" is not an amount of money`, "5.00 USD"},
		{"money without a currency", grantWith("limits: {spend: 5}"), `6: spend: "5" is not an amount of money`, ""},
		{"no runs a day", grantWith("daily: {runs: 0}"), "6: runs: 0 is not a limit", ""},
		{"everybody's runs", grantWith("runs: all"), `6: runs: "all" does not say whose runs`, "write `own`"},
		{"the end of a month without a day", grantWith("expires: 2027-06"), `6: expires: "2027-06" is neither a date nor a time`, "2027-06-30"},
		{"a day that does not exist", grantWith("expires: 2027-02-29"), `6: expires: "2027-02-29" is neither a date nor a time`, ""},
		{"an end that never comes", grantWith("expires: never"), `6: expires: "never" is neither a date nor a time`, ""},
		{"no end", grantWith("expires: ~"), `6: key "expires" has no value`, ""},
		{"a key of the file in a grant", grantWith("version: 1"), `6: unknown key "version"`, ""},
		{"a list of nothing", "version: 1\ngrants: [~]\n", `2: key "grants" has no value`, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := Parse(FileName, []byte(test.file))
			refusedWith(t, err, FileName+":"+test.want, test.hint)
			if len(got.Grants) != 0 {
				t.Errorf("part of it holds: %+v", got)
			}
		})
	}
}

func refusedWith(t *testing.T, err error, detail, hint string) {
	t.Helper()
	var f *fault.Error
	if !errors.As(err, &f) || f.Kind != fault.Invalid {
		t.Fatalf("err = %v, want %s", err, detail)
	}
	if f.Detail != detail {
		t.Errorf("got  %s\nwant %s", f.Detail, detail)
	}
	if !strings.Contains(f.Hint, hint) {
		t.Errorf("the hint %q does not hold %q", f.Hint, hint)
	}
}

// TestControlCannotBeGranted tries every capability of the control Branch in spellings that
// somebody may hope for.
func TestControlCannotBeGranted(t *testing.T) {
	spellings := []func(string) string{
		func(s string) string { return s },
		strings.ToUpper,
		func(s string) string { return strings.ToUpper(s[:1]) + s[1:] },
		func(s string) string { return strings.ReplaceAll(s, ".", " ") },
		func(s string) string { return strings.ReplaceAll(s, ".", "-") },
		func(s string) string { return strings.ReplaceAll(s, ".", "/") },
		func(s string) string { return "'" + s + " '" },
		func(s string) string { return "' " + s + "'" },
		func(s string) string { return s + "." },
		func(s string) string { return `"` + s + `\0"` },
		func(s string) string { return `"` + s + `\u200b"` },
		func(s string) string { return strings.Replace(s, "e", "е", 1) }, // Cyrillic
		func(s string) string { noun, _, _ := strings.Cut(s, "."); return noun + ".*" },
		func(s string) string { noun, _, _ := strings.Cut(s, "."); return noun },
	}
	named := 0
	for _, class := range append(classes(capability.Control), "control") {
		for _, spell := range spellings {
			_, err := Parse(FileName, []byte(grantWith("classes: [run.get, "+spell(class)+"]")))
			if !fault.Is(err, fault.Invalid) {
				t.Errorf("%s: %v", spell(class), err)
			}
			if err != nil && strings.Contains(err.Error(), "cannot be granted: "+class+" is the Botanist's alone") {
				named++
			}
		}
		// Not even a File that no file could say.
		f := File{Grants: []Grant{{Pollen: "a", Substrates: Set[SubstrateName]{"s"}, Classes: Set[Class]{Class(class)}}}}
		if d := f.Decide(Request{Pollen: "a", Class: class, Substrate: "s", Now: time.Now()}); d.Permitted || d.Add != "" {
			t.Errorf("%s is permitted, or offered: %+v", class, d)
		}
		if scope := f.Scope("a", class, time.Now()); len(scope) != 0 {
			t.Errorf("%s shows %v", class, scope)
		}
	}
	if named < 5*len(classes(capability.Control)) {
		t.Errorf("only %d of the refusals say whose it is", named)
	}
}

func TestMoney(t *testing.T) {
	for text, want := range map[string]Money{
		"5.00 USD": 5_000_000, "5 USD": 5_000_000, "0.000001 USD": 1, "0.5 USD": 500_000, "12.345678 USD": 12_345_678,
		"9223372036852.999999 USD": 9_223_372_036_852_999_999,
	} {
		got, err := ParseMoney(text)
		if err != nil || got != want {
			t.Errorf("%s is %d, %v", text, got, err)
		}
		if again, err := ParseMoney(got.String()); err != nil || again != got {
			t.Errorf("%s becomes %s, and that %d, %v", text, got, again, err)
		}
	}
	for _, text := range []string{
		"", "USD", " USD", "5", "5USD", "5  USD", "5 usd", "5 EUR", "USD 5", "$5", "-5 USD", "+5 USD", "05 USD", "5. USD", ".5 USD", "5,00 USD",
		"5.0000001 USD", "1e3 USD", "0 USD", "0.00 USD", "0x5 USD", "1_000 USD", "5.00 USD ", "٥ USD", "9223372036854 USD", "99999999999999999999 USD", "nan USD", "5.-1 USD",
	} {
		if got, err := ParseMoney(text); err == nil {
			t.Errorf("%q is %d", text, got)
		}
	}
}

func TestExpiry(t *testing.T) {
	for text, want := range map[string]string{
		"2027-06-30":                "2027-06-30",
		"2027-06-30T00:00:00Z":      "2027-06-30",
		"2027-06-30T18:30:05Z":      "2027-06-30T18:30:05Z",
		"2027-06-30T18:30:05+00:00": "2027-06-30T18:30:05Z",
		"2027-06-30T18:30:05+02:00": "2027-06-30T16:30:05Z",
		"2028-02-29":                "2028-02-29",
	} {
		got, err := ParseExpiry(text)
		if err != nil || got.String() != want {
			t.Errorf("%s is %s, %v", text, got, err)
		}
	}
	for _, text := range []string{
		"", "2027", "2027-6-30", "27-06-30", "30.06.2027", "06/30/2027", "2027-06-31", "2027-13-01", "2027-06-30 18:00:00Z", "2027-06-30T18:00Z",
		"2027-06-30T18:00:00", "2027-06-30t18:00:00z", "2027-06-30T8:00:00Z", "2027-06-30T18:00:00.5Z", "2027-06-30T18:00:00,5Z", "2027-06-30T24:00:00Z",
		"2027-06-30T23:59:60Z", "2027-06-30T18:00:00-00:00", "2027-06-30T18:00:00+25:00", "+2027-06-30", "tomorrow", "1814313600",
	} {
		if got, err := ParseExpiry(text); err == nil {
			t.Errorf("%q is %s", text, got)
		}
	}
	end, err := ParseExpiry("2027-06-30")
	if err != nil {
		t.Fatal(err)
	}
	at := time.Date(2027, 6, 30, 0, 0, 0, 0, time.UTC)
	if end.Passed(at.Add(-1)) || !end.Passed(at) || !end.Passed(at.In(time.FixedZone("", 12*3600))) {
		t.Error("a grant of 2027-06-30 ends at 00:00Z of that day, and not before")
	}
}

func TestDigest(t *testing.T) {
	f, err := Parse(FileName, []byte(example))
	if err != nil {
		t.Fatal(err)
	}
	elsewhere, err := Parse("other.yaml", []byte("# moved\n"+strings.Replace(example, "memory: 4GiB", `"memory": 4294967296`, 1)))
	if err != nil {
		t.Fatal(err)
	}
	if f.Grants[0].Digest() != elsewhere.Grants[0].Digest() {
		t.Error("the same grant, written otherwise, has another digest")
	}
	changed := f.Grants[0]
	changed.Limits.Spend = new(Money(5_000_001))
	if f.Grants[0].Digest() == changed.Digest() || f.Grants[0].Digest() == f.Grants[1].Digest() {
		t.Error("another grant has the same digest")
	}
}
