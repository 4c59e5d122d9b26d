package model

import (
	"os"
	"strings"
	"testing"
)

// The file that the page shows is understood, and what is refused and the paths are named
// there.
func TestDocumentedFields(t *testing.T) {
	text, err := os.ReadFile("../../docs/models.md")
	if os.IsNotExist(err) {
		t.Skip("this is not a checkout")
	}
	if err != nil {
		t.Fatal(err)
	}
	page := string(text)
	_, shown, found := strings.Cut(page, "\n    version: 1\n    anthropic:\n")
	if !found {
		t.Fatal("the page shows no fields")
	}
	shown, _, _ = strings.Cut(shown, "\n\n")
	f, err := WithFile(FieldsFileName, []byte("version: 1\nanthropic:\n"+strings.ReplaceAll("\n"+shown, "\n    ", "\n")))
	if err != nil || len(f.responses.kinds["message"].rules) <= len(BuiltIn().responses.kinds["message"].rules) {
		t.Errorf("%v\n%s", err, shown)
	}
	for _, d := range dialects() {
		for key := range d.refused {
			if !strings.Contains(page, "`"+key+"`") && key != "file_id" && key != "file_url" { // ids and URLs
				t.Errorf("the page does not say that %s is refused", key)
			}
		}
	}
}
