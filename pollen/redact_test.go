package pollen_test

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"tendril/pollen"
)

func TestRedact(t *testing.T) {
	token := pollen.NewToken().Reveal()
	const redacted = "tendril_pollen_(redacted)"
	for text, want := range map[string]string{
		token:                          redacted,
		"./" + token + "/file":         "./" + redacted + "/file",
		"\xff/" + token + "\xfe":       "\xff/" + redacted + "\xfe",
		token + token:                  redacted,
		token + " " + token:            redacted + " " + redacted,
		token[:40] + "…":               redacted + "…",
		`open "` + token + "x\": no":   `open "` + redacted + `": no`,
		"tendril_pollen_ and a secret": "tendril_pollen_ and a secret",
		"tendril_pollen_short":         "tendril_pollen_short",
		"":                             "",
	} {
		if got := pollen.Redact(text); got != want {
			t.Errorf("%q\ngot  %q\nwant %q", text, got, want)
		}
	}
}

func TestNothingOfATokenIsLeft(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var text strings.Builder
		var tokens []string
		for range rapid.IntRange(1, 4).Draw(t, "tokens") {
			token := pollen.NewToken().Reveal()
			tokens = append(tokens, token)
			text.WriteString(rapid.StringOfN(rapid.RuneFrom([]rune("/a_\"…\x00t")), 0, 3, -1).Draw(t, "between") + token)
		}
		got := pollen.Redact(text.String())
		for _, token := range tokens {
			if secret := strings.TrimPrefix(token, "tendril_pollen_"); strings.Contains(got, secret) || strings.Contains(got, secret[len(secret)-8:]) {
				t.Fatalf("%q became %q", text.String(), got)
			}
		}
		if again := pollen.Redact(got); again != got {
			t.Fatalf("%q became %q", got, again)
		}
	})
}
