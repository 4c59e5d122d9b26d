// Walls puts the table of the walls into a document, between two marks. It reads what
// `tendril terrarium list --json` prints: what each wall declares, which the conformance
// suite holds it to. What is ready on the host that it runs on does not count.
//
//	tendril terrarium list --json | go run ./scripts/walls docs/terrarium.md
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
)

// wall is what the table needs of capability.Terrarium.
type wall struct {
	Provider     string   `json:"provider"`
	Primitive    string   `json:"primitive"`
	OnlyNamed    bool     `json:"only_named"`
	SharedKernel bool     `json:"shared_kernel"`
	Roots        []string `json:"roots"`
	Seals        []string `json:"seals"`
	Unsealed     []string `json:"unsealed"`
	Keeps        []struct {
		Field string `json:"field"`
		By    string `json:"by"`
	} `json:"keeps"`
}

const (
	begin = "<!-- walls: made by make generate -->\n"
	end   = "<!-- end of walls -->\n"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "walls:", err)
		os.Exit(1)
	}
}

func run() error {
	if len(os.Args) != 2 {
		return fmt.Errorf("name the document")
	}
	var walls []wall
	if err := json.NewDecoder(os.Stdin).Decode(&walls); err != nil {
		return fmt.Errorf("reading the walls: %w", err)
	}
	text, err := os.ReadFile(os.Args[1])
	if err != nil {
		return err
	}
	before, rest, found := strings.Cut(string(text), begin)
	_, after, closed := strings.Cut(rest, end)
	if !found || !closed {
		return fmt.Errorf("%s has not both marks", os.Args[1])
	}
	return os.WriteFile(os.Args[1], []byte(before+begin+"\n"+table(walls)+"\n"+end+after), 0o644)
}

func table(walls []wall) string {
	var b strings.Builder
	row := func(name string, cell func(wall) string) {
		fmt.Fprintf(&b, "| %s |", name)
		for _, w := range walls {
			fmt.Fprintf(&b, " %s |", cell(w))
		}
		b.WriteByte('\n')
	}
	row("", func(w wall) string { return "`" + w.Provider + "`" })
	row("---", func(wall) string { return "---" })
	row("made of", func(w wall) string { return w.Primitive })
	row("for runs that name none", func(w wall) string { return yes(!w.OnlyNamed) })
	row("kernel of the host behind it", func(w wall) string { return yes(w.SharedKernel) })
	row("root file system", func(w wall) string { return strings.Join(w.Roots, " or ") })
	for _, seal := range seals(walls) {
		row("seal `"+seal+"`", func(w wall) string {
			if slices.Contains(w.Seals, seal) {
				return "sealed"
			}
			return "open"
		})
	}
	for i, kept := range walls[0].Keeps {
		row("`"+kept.Field+"`", func(w wall) string { return w.Keeps[i].By })
	}
	return b.String()
}

// seals are all of them, in the order of the wall that has most.
func seals(walls []wall) []string {
	var all []string
	for _, w := range walls {
		for _, seal := range slices.Concat(w.Seals, w.Unsealed) {
			if !slices.Contains(all, seal) {
				all = append(all, seal)
			}
		}
	}
	return all
}

func yes(is bool) string {
	if is {
		return "yes"
	}
	return "no"
}
