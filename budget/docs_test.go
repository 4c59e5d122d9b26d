package budget_test

import (
	"os"
	"strings"
	"testing"

	"tendril/budget"
)

// The prices that the page shows are understood, and every key is explained there.
func TestDocumentedPrices(t *testing.T) {
	page, err := os.ReadFile("../docs/models.md")
	if os.IsNotExist(err) {
		t.Skip("this is not a checkout")
	}
	if err != nil {
		t.Fatal(err)
	}
	_, shown, found := strings.Cut(string(page), "\n    version: 1\n    prices:\n")
	if !found {
		t.Fatal("the page shows no prices")
	}
	shown, _, _ = strings.Cut(shown, "\n\n")
	p, err := budget.ParsePrices(budget.FileName, []byte("version: 1\nprices:\n"+strings.ReplaceAll("\n"+shown, "\n    ", "\n")))
	if err != nil || len(p.Models(budget.Anthropic)) == 0 || len(p.Models(budget.OpenAI)) == 0 {
		t.Errorf("%v\n%s", err, shown)
	}
	for _, key := range []string{"route", "model", "input", "output", "cache_read", "cache_write", "max_input", "max_output"} {
		if !strings.Contains(string(page), "`"+key+"`") {
			t.Errorf("the page says nothing of %s", key)
		}
	}
}
