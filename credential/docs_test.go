package credential

import (
	"os"
	"reflect"
	"strings"
	"testing"
)

// document returns docs/credentials.md.
func document(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../docs/credentials.md")
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
	blocks := strings.Split(document(t), "\n    version: 1\n")[1:]
	if len(blocks) == 0 {
		t.Error("the page shows no file")
	}
	for _, block := range blocks {
		text := "version: 1\n"
		for line := range strings.Lines(block) {
			rest, ok := strings.CutPrefix(line, "    ")
			if !ok {
				break
			}
			text += rest
		}
		if f := mustParse(t, text); len(f.Credentials) == 0 {
			t.Errorf("there is nothing in\n%s", text)
		}
	}
}

func TestEveryKeyIsDocumented(t *testing.T) {
	text := document(t)
	for _, holder := range []reflect.Type{
		reflect.TypeFor[File](), reflect.TypeFor[Credential](), reflect.TypeFor[Source](), reflect.TypeFor[Age](), reflect.TypeFor[Bind](), reflect.TypeFor[Attach](),
	} {
		for i := range holder.NumField() {
			key, _, _ := strings.Cut(holder.Field(i).Tag.Get("yaml"), ",")
			if key != "" && key != "-" && !strings.Contains(text, "`"+key+"`") {
				t.Errorf("docs/credentials.md says nothing of %q", key)
			}
		}
	}
}
