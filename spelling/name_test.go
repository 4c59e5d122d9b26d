package spelling

import (
	"errors"
	"regexp"
	"strings"
	"testing"

	"tendril/fault"
)

func TestCheckName(t *testing.T) {
	for _, name := range []string{"a", "7", "ci-docs", "a-b-c", "2026-release", strings.Repeat("x", 63)} {
		if err := CheckName("Pollen", name); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
	const noGuess = "write something like ci-docs"
	for _, test := range []struct{ name, hint string }{
		{"", noGuess},
		{"-", noGuess},
		{"...", noGuess},
		{"CI-Docs", `did you mean "ci-docs"?`},
		{"a/b", `did you mean "a-b"?`},
		{"a--b", `did you mean "a-b"?`},
		{"a_b", `did you mean "a-b"?`},
		{"-a", `did you mean "a"?`},
		{"a-", `did you mean "a"?`},
		{" a ", `did you mean "a"?`},
		{"../a", `did you mean "a"?`},
		{"a\n", noGuess},
		{"a\x00", noGuess},
		{"a\x7f", noGuess},
		{"\xff", noGuess},
		{"résumé", noGuess},
		{"\u0430dmin", noGuess},      // Cyrillic a
		{"a\u2010b", noGuess},        // a hyphen that is none
		{"ci\u200bdocs", noGuess},    // a space without a width
		{"\u212aey", noGuess},        // the Kelvin sign, which lower-cases to k
		{"\u0131d", noGuess},         // a dotless i
		{"\uff41bc", noGuess},        // full width
		{"caf\u0065\u0301", noGuess}, // a combining accent
		{"a\u202eb", noGuess},        // right to left
		{"\u0661", noGuess},          // an Arabic-Indic digit
		{strings.Repeat("x", 64), noGuess},
		{strings.Repeat("x/", 1<<20), noGuess},
	} {
		err := CheckName("Pollen", test.name)
		var f *fault.Error
		if !errors.As(err, &f) || f.Kind != fault.Invalid {
			t.Errorf("%.80q: %v", test.name, err)
			continue
		}
		if f.Hint != test.hint {
			t.Errorf("%.80q: hint %q, want %q", test.name, f.Hint, test.hint)
		}
		if len(f.Detail) > 600 {
			t.Errorf("the refusal repeats %d bytes", len(f.Detail))
		}
	}
}

func FuzzCheckName(f *testing.F) {
	for _, seed := range []string{"", "a", "a-b", "A/b", "a--b", "-", "\u0430", "\xff"} {
		f.Add(seed)
	}
	canonical := regexp.MustCompile(`\A[a-z0-9]+(-[a-z0-9]+)*\z`)
	f.Fuzz(func(t *testing.T, name string) {
		want := canonical.MatchString(name) && len(name) <= 63
		if err := CheckName("Pollen", name); (err == nil) != want {
			t.Errorf("%q: %v", name, err)
		}
	})
}
