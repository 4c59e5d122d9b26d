// Command summary reads `go test -json` and prints what a person needs: the whole
// output of what failed, what was skipped and why, and last the lines that go
// test itself prints for each package.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
)

type event struct {
	Action, Package, Test, Output string
}

var reason = regexp.MustCompile(`^\s+\S+\.go:\d+: (.*)$`)

func main() {
	output := map[string][]string{}
	var skipped, packages []string
	var failed []string
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 4<<20)
	for lines.Scan() {
		var e event
		if json.Unmarshal(lines.Bytes(), &e) != nil {
			fmt.Println(lines.Text()) // a build failure speaks plainly
			continue
		}
		key := e.Package + " " + e.Test
		switch e.Action {
		case "output", "build-output":
			if e.Test == "" && (strings.HasPrefix(e.Output, "ok ") || strings.HasPrefix(e.Output, "FAIL\t") || strings.HasPrefix(e.Output, "?   ")) {
				packages = append(packages, strings.TrimRight(e.Output, "\n"))
				continue
			}
			if e.Action == "build-output" {
				fmt.Print(e.Output)
				continue
			}
			output[key] = append(output[key], e.Output)
		case "skip":
			if e.Test != "" {
				skipped = append(skipped, e.Package+"."+e.Test+": "+why(output[key]))
			}
			delete(output, key)
		case "fail":
			failed = append(failed, key)
		case "pass":
			delete(output, key)
		}
	}
	if err := lines.Err(); err != nil {
		fmt.Fprintln(os.Stderr, "summary: reading the test output:", err)
		os.Exit(1)
	}
	for _, key := range failed {
		fmt.Print(strings.Join(output[key], ""))
	}
	slices.Sort(skipped)
	fmt.Printf("skipped: %d\n", len(skipped))
	for _, line := range skipped {
		fmt.Println("  " + line)
	}
	for _, line := range packages {
		fmt.Println(line)
	}
}

// why is what the test said when it skipped.
func why(output []string) string {
	for _, line := range slices.Backward(output) {
		if m := reason.FindStringSubmatch(strings.TrimRight(line, "\n")); m != nil {
			return m[1]
		}
	}
	return "no reason given"
}
