package imagetest

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
)

// compiled begins the name of what compileOnce made, of which there is one a version of Go.
const compiled = "go-build-"

// compileOnce returns a build cache in which the packages of a small program with a test
// are compiled, as they are where there is no C compiler.
func compileOnce() (string, error) {
	cache, err := cacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, compiled+runtime.Version())
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	making, err := os.MkdirTemp(cache, ".making-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(making)
	program, build := filepath.Join(making, "program"), filepath.Join(making, "build")
	if err := os.Mkdir(program, 0o700); err != nil {
		return "", err
	}
	for name, text := range map[string]string{
		"go.mod": "module warm\n\ngo 1.21\n", "main.go": "package main\n\nfunc main() {}\n",
		"main_test.go": "package main\n\nimport \"testing\"\n\nfunc TestNothing(*testing.T) {}\n",
	} {
		if err := os.WriteFile(filepath.Join(program, name), []byte(text), 0o600); err != nil {
			return "", err
		}
	}
	for _, args := range [][]string{{"build", "-o", "built", "."}, {"test", "."}} {
		cmd := exec.Command("go", args...)
		cmd.Dir = program
		cmd.Env = append(os.Environ(), "GOCACHE="+build, "CGO_ENABLED=0", "GOFLAGS=")
		if out, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("compiling what an image for tests has: %w: %s", err, out)
		}
	}
	if err := os.Rename(build, dir); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", err
	}
	return dir, nil
}
