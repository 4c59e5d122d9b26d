//go:build !wasm

package policy

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The page that explains the policy evaluates with this code, so it has to say the
// same there.
func TestWholeInputSpaceInWebAssembly(t *testing.T) {
	for _, program := range []string{"go", "node"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("%s is not installed", program)
		}
	}
	goroot, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	node := filepath.Join(strings.TrimSpace(string(goroot)), "lib/wasm/go_js_wasm_exec")
	cmd := exec.Command("go", "test", "-exec", node, "-run", "^TestWholeInputSpace$", "-v", ".")
	cmd.Env = append(os.Environ(), "GOOS=js", "GOARCH=wasm", "CGO_ENABLED=0", "GOFLAGS=")
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: TestWholeInputSpace ") {
		t.Errorf("%v\n%s", err, out)
	}
}
