package credential

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"tendril/fault"
)

const honey = "h0neytoken-0f-tests"

func newSecret(t *testing.T, text string) Secret {
	t.Helper()
	s, err := NewSecret([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestNothingPrintsASecret(t *testing.T) {
	secret := newSecret(t, honey)
	type holder struct {
		Secret Secret
		hidden Secret
		Deep   []map[string]*Secret
	}
	held := holder{secret, secret, []map[string]*Secret{{"a": &secret}}}
	check := func(how, text string) {
		t.Helper()
		for _, form := range []string{honey, hex.EncodeToString([]byte(honey)), strings.ToUpper(hex.EncodeToString([]byte(honey))), fmt.Sprint([]byte(honey)), "aDBuZXl0b2"} {
			if strings.Contains(text, strings.Trim(form[:len(form)/2], "[]")) {
				t.Errorf("%s shows the secret: %s", how, text)
			}
		}
	}
	for _, value := range []any{secret, &secret, held, &held, []Secret{secret}, map[string]Secret{"a": secret}, fault.New(fault.Denied, "no: %v", secret)} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "% x", "%d", "%T", "%p", "%U", "%c", "%t", "%!"} {
			check(verb, fmt.Sprintf(verb, value))
		}
		check("Println", fmt.Sprintln(value))
		var log bytes.Buffer
		slog.New(slog.NewJSONHandler(&log, nil)).Info("call", "secret", value)
		slog.New(slog.NewTextHandler(&log, nil)).Info("call", "secret", value)
		check("slog", log.String())
	}
	for _, value := range []any{secret, &secret, held, []Secret{secret}, map[string]any{"a": secret}} {
		text, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		check("json", string(text))
	}
	check("String", secret.String()+secret.GoString())
	if fmt.Sprint(secret) != "(redacted)" {
		t.Error("a reader cannot see what was left out")
	}
}

func TestSecretIsOverwritten(t *testing.T) {
	secret := newSecret(t, honey)
	copied, clone, bytes := secret, secret.Clone(), secret.Bytes()
	secret.Close()
	secret.Close()
	if strings.Trim(string(bytes), "\x00") != "" || copied.Bytes() != nil || secret.Clone().Bytes() != nil {
		t.Errorf("%q is still there", bytes)
	}
	if string(clone.Bytes()) != honey {
		t.Errorf("the clone is %q", clone.Bytes())
	}
	var none Secret
	none.Close()
	if none.Bytes() != nil || none.Clone().Bytes() != nil {
		t.Error("the zero Secret is one")
	}
}

func TestNewSecretRefuses(t *testing.T) {
	for _, text := range []string{"", "h0ney12", "h0ney\nh0ney", "h0ney\rh0ney", "h0ney\x00h0ney", "h0ney\th0ney", "h0ney\x7fh0ney", " h0neyh0ney", "h0neyh0ney ", strings.Repeat("h0ney", 4000)} {
		bytes := []byte(text)
		secret, err := NewSecret(bytes)
		if err == nil || secret.Bytes() != nil || strings.Contains(err.Error(), "h0ney") {
			t.Errorf("%.40q: %v", text, err)
		}
		if strings.Trim(string(bytes), "\x00") != "" {
			t.Errorf("%.40q is still there", bytes)
		}
	}
	for _, text := range []string{"12345678", "a b c d e", "pässwörd", "\xff\xfe\xfd\xfc\xfb\xfa\xf9\xf8", strings.Repeat("x", LongestSecret)} {
		if _, err := NewSecret([]byte(text)); err != nil {
			t.Errorf("%.40q: %v", text, err)
		}
	}
}
