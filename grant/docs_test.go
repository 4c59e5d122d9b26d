package grant

import (
	"os"
	"reflect"
	"strings"
	"testing"

	"tendril/destination"
)

// document returns docs/grants.md.
func document(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../docs/grants.md")
	if os.IsNotExist(err) {
		t.Skip("this is not a checkout")
	}
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestDocumentedFilesAreUnderstood reads every file that the page shows.
func TestDocumentedFilesAreUnderstood(t *testing.T) {
	grants, substrates := 0, 0
	for _, block := range strings.Split(document(t), "\n    version: 1\n")[1:] {
		text := "version: 1\n"
		for line := range strings.Lines(block) {
			if rest, ok := strings.CutPrefix(line, "    "); ok {
				text += rest
			} else if strings.TrimSpace(line) != "" {
				break
			}
		}
		if strings.Contains(text, "\ngrants:") {
			grants++
			if _, err := Parse(FileName, []byte(text)); err != nil {
				t.Errorf("%v\n%s", err, text)
			}
		} else {
			substrates++
			if _, err := ParseSubstrates(SubstratesFileName, []byte(text)); err != nil {
				t.Errorf("%v\n%s", err, text)
			}
		}
	}
	if grants == 0 || substrates == 0 {
		t.Errorf("the page shows %d grants files and %d Substrates files", grants, substrates)
	}
}

func TestEveryKeyIsDocumented(t *testing.T) {
	text := document(t)
	for _, holder := range []reflect.Type{
		reflect.TypeFor[File](), reflect.TypeFor[Grant](), reflect.TypeFor[Limits](), reflect.TypeFor[Limits]().Field(0).Type,
		reflect.TypeFor[Daily](), reflect.TypeFor[destination.Rule](), reflect.TypeFor[Substrate](),
	} {
		for i := range holder.NumField() {
			key, _, _ := strings.Cut(holder.Field(i).Tag.Get("yaml"), ",")
			if key != "" && key != "-" && !strings.Contains(text, "`"+key+"`") {
				t.Errorf("docs/grants.md says nothing of %q", key)
			}
		}
	}
}
