// Package goroutines holds a package's tests to leaving no goroutine behind.
package goroutines

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
)

// Main runs the tests of a package and ends the process. It fails if a goroutine that is in
// a function of that package outlives them. The room is its import path.
func Main(m *testing.M, room string) {
	code := m.Run()
	var stacks string
	for range 1000 { // one that has been waited for may still have to return
		if stacks = left(room); stacks == "" {
			os.Exit(code)
		}
		runtime.Gosched()
	}
	fmt.Fprintf(os.Stderr, "goroutines were left behind:\n%s\n", stacks)
	os.Exit(1)
}

func left(room string) string {
	buffer := make([]byte, 4<<20)
	var list []string
	for stack := range strings.SplitSeq(string(buffer[:runtime.Stack(buffer, true)]), "\n\n") {
		if strings.Contains(stack, room+".") && !strings.Contains(stack, "TestMain") {
			list = append(list, stack)
		}
	}
	return strings.Join(list, "\n\n")
}
