//go:build linux

package docker

import (
	"os"
	"path/filepath"
	"strings"

	"tendril/fault"
	"tendril/terrarium/confine"
)

// layers remembers the digests of archives that were given to a daemon, because to read one
// takes as long as to copy it. A line is the name of an image and a digest; the newest is
// the last.
type layers struct{ path string } // "": nothing is remembered

// keptLayers is how many lines the file has.
const keptLayers = 8 * keptImages

func (p *provider) layers() layers {
	if p.Store == "" {
		return layers{}
	}
	return layers{filepath.Join(p.Store, "docker-layers")}
}

// of returns "" for what is not remembered.
func (l layers) of(name string) string {
	for _, line := range l.lines() {
		if n, digest, ok := strings.Cut(line, " "); ok && n == name && len(digest) == len("sha256:")+64 {
			return digest
		}
	}
	return ""
}

func (l layers) lines() []string {
	text, err := os.ReadFile(l.path)
	if err != nil {
		return nil // it is worked out again
	}
	return strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
}

func (l layers) keep(name, digest string) error {
	if l.path == "" {
		return nil
	}
	var lines []string
	for _, line := range l.lines() {
		if line != "" && !strings.HasPrefix(line, name+" ") {
			lines = append(lines, line)
		}
	}
	lines = append(lines, name+" "+digest)
	lines = lines[max(0, len(lines)-keptLayers):]
	return replaceFile(l.path, strings.Join(lines, "\n")+"\n")
}

// replaceFile keeps what other processes read too.
func replaceFile(path, content string) error {
	if err := confine.ReplaceFile(path, []byte(content)); err != nil {
		return fault.New(fault.Unavailable, "remembering what was asked of the Docker daemon: %w", err).WithHint("make %q writable", filepath.Dir(path))
	}
	return nil
}
