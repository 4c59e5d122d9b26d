// Package corpora reads tables of third-party cases for tests.
package corpora

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Rows are the rows of a table, each a map from column to cell. Cells are separated by
// tabs and the first line names the columns. The table lies in the directory that
// TENDRIL_CORPORA names, or in shared/corpora beside the checkout; where it does not, the
// test is skipped by its name.
func Rows(t testing.TB, name string) []map[string]string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(directory(t), name))
	if os.IsNotExist(err) {
		t.Skipf("the corpus %s is missing: name its directory with TENDRIL_CORPORA", name)
	}
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
	columns := strings.Split(lines[0], "\t")
	var rows []map[string]string
	for _, line := range lines[1:] {
		row := map[string]string{}
		for i, cell := range strings.Split(line, "\t") {
			row[columns[i]] = cell
		}
		rows = append(rows, row)
	}
	if len(rows) == 0 {
		t.Fatalf("%s has no rows", name)
	}
	return rows
}

func directory(t testing.TB) string {
	t.Helper()
	if named := os.Getenv("TENDRIL_CORPORA"); named != "" {
		return named
	}
	at, err := os.Getwd() // of a test: the directory of its package
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(at, "go.mod")); err == nil || at == filepath.Dir(at) {
			return filepath.Join(filepath.Dir(at), "shared", "corpora")
		}
		at = filepath.Dir(at)
	}
}
