package model

import (
	"fmt"
	"strings"
	"testing"

	"tendril/fault"
)

func TestDocumentsThatAreRefused(t *testing.T) {
	for name, c := range map[string]struct{ text, says string }{
		"nothing":                   {"", "no value"},
		"something after the end":   {"{} {}", "something follows"},
		"no UTF-8":                  {"\"\xff\"", "not UTF-8"},
		"a mark before it":          {"\ufeff{}", "no value"},
		"a key twice":               {`{"a":1,"a":1}`, `"a" comes twice`},
		"a key twice, escaped":      {`{"a":1,"\u0061":1}`, `"a" comes twice`},
		"a key of half a pair":      {`{"\ud800":1}`, "a key is not text"},
		"a key that is no text":     {`{1:1}`, "no text in quotes"},
		"no colon":                  {`{"a" 1}`, "no colon"},
		"no comma":                  {`{"a":1 "b":1}`, "no comma"},
		"a comma too many":          {`[1,]`, "no value"},
		"a line in text":            {"\"a\nb\"", "control character"},
		"an escape that is none":    {`"\x41"`, "escape"},
		"half an escape":            {`"\u00"`, "escape"},
		"text without end":          {`"abc`, "does not end"},
		"text without end, escaped": {`"abc\`, "does not end"},
		"a number with a zero":      {`01`, "something follows"},
		"a number that is none":     {`NaN`, "no value"},
		"half a number":             {`1.`, "no digits"},
		"half an exponent":          {`1e+`, "no digits"},
		"too deep":                  {strings.Repeat("[", deepest+2) + strings.Repeat("]", deepest+2), "nest deeper"},
		"too many members":          {"{" + members(mostMembers+1) + "}", "more than 10000 members"},
		"too many values":           {"[" + strings.Repeat("1,", mostValues) + "1]", "more than 250000 values"},
	} {
		if err := document([]byte(c.text)); !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, text := range []string{`{}`, ` [ ] `, `{"a":{"a":[{"a":-0.5e+10}]}}`, `"\ud800"`, "{" + members(mostMembers) + "}",
		strings.Repeat("[", deepest) + strings.Repeat("]", deepest)} {
		if err := document([]byte(text)); err != nil {
			t.Errorf("%.40s: %v", text, err)
		}
	}
}

func members(n int) string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf(`"%d":0`, i)
	}
	return strings.Join(all, ",")
}
