package substrate

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"tendril/fault"
)

// setting is one line of the effective configuration.
type setting struct {
	origin string // the file it is from, "" if it is not from a file
	key    string // as git-config(1) prints it: section and name in lower case
	value  string
}

// effectiveConfig reads, as data, the configuration that a person's own Git
// would use in the repository: of the system, of this account, of the repository
// and of what they include. "git config --list" executes nothing that it reads.
// An include may name a FIFO or an endless file, hence the deadline.
func (r *Repository) effectiveConfig(ctx context.Context, gitDir string) ([]setting, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	reader := *r.git
	reader.env = []string{
		"PATH=/usr/local/bin:/usr/bin:/bin", "LC_ALL=C", "GIT_DIR=" + gitDir, "GIT_PAGER=cat",
		"GIT_TERMINAL_PROMPT=0", "GIT_TRACE2=0", "GIT_TRACE2_EVENT=0", "GIT_TRACE2_PERF=0",
	}
	for _, name := range []string{"HOME", "XDG_CONFIG_HOME"} {
		if value, ok := os.LookupEnv(name); ok {
			reader.env = append(reader.env, name+"="+value)
		}
	}
	out, err := reader.run(ctx, nil, "config", "--list", "--null", "--show-origin", "--includes")
	if errors.Is(err, context.DeadlineExceeded) {
		return nil, fault.New(fault.Invalid, "the configuration of %s cannot be read within 10 seconds", r.where()).
			WithHint("see what it includes: git config --list --show-origin")
	}
	if err != nil {
		return nil, fault.New(fault.Invalid, "the configuration of %s: %w", r.where(), err)
	}
	return parseConfigList(string(out))
}

// parseConfigList reads "ORIGIN\0KEY\nVALUE\0" repeated. A key without a value
// has no newline after it and means true.
func parseConfigList(out string) ([]setting, error) {
	var settings []setting
	for out != "" {
		origin, rest, ok1 := strings.Cut(out, "\x00")
		line, rest, ok2 := strings.Cut(rest, "\x00")
		if !ok1 || !ok2 {
			return nil, errors.New("git config: unexpected answer")
		}
		key, value, valued := strings.Cut(line, "\n")
		if !valued {
			value = "true"
		}
		file, _ := strings.CutPrefix(origin, "file:")
		if file == origin {
			file = ""
		}
		settings = append(settings, setting{file, key, value})
		out = rest
	}
	return settings, nil
}

// comparing are settings that decide how Git compares files with the index.
// They are data with a handful of possible values.
var comparing = []string{"core.autocrlf", "core.eol", "core.filemode", "core.symlinks", "core.ignorecase", "core.checkstat", "core.trustctime"}

// localRules are what the person's Git takes into account for a working tree,
// beyond what is in the tree itself.
type localRules struct {
	excludes string   // patterns, the weaker first
	settings []string // GIT_CONFIG_* variables
	fileMode bool     // the file system keeps executable bits
}

// maxExcludes bounds a file of ignore patterns.
const maxExcludes = 1 << 20

// rules reads the local rules once.
func (r *Repository) rules(ctx context.Context) (*localRules, error) {
	if r.local != nil {
		return r.local, nil
	}
	settings, err := r.effectiveConfig(ctx, r.GitDir)
	if err != nil {
		return nil, err
	}
	file := defaultExcludes()
	values := map[string]string{}
	for _, s := range settings {
		if s.key == "core.excludesfile" {
			file = expandHome(s.value)
		}
		if slices.Contains(comparing, s.key) && strings.Trim(strings.ToLower(s.value), "abcdefghijklmnopqrstuvwxyz01") == "" {
			values[s.key] = s.value
		}
	}
	rules := &localRules{fileMode: true}
	if value, ok := values["core.filemode"]; ok {
		rules.fileMode = isTrue(value)
	}
	n := 0
	for _, key := range comparing {
		if value, ok := values[key]; ok {
			rules.settings = append(rules.settings, fmt.Sprintf("GIT_CONFIG_KEY_%d=%s", n, key), fmt.Sprintf("GIT_CONFIG_VALUE_%d=%s", n, value))
			n++
		}
	}
	rules.settings = append(rules.settings, fmt.Sprintf("GIT_CONFIG_COUNT=%d", n))
	if data, err := readPlain(file); err == nil {
		rules.excludes = string(data) + "\n"
	}
	data, err := r.common.readFile("info/exclude", maxExcludes)
	if err != nil && !absent(err) {
		return nil, invalid(err)
	}
	rules.excludes += string(data)
	r.local = rules
	return rules, nil
}

// defaultExcludes is core.excludesFile's default, of gitignore(5).
func defaultExcludes() string {
	if dir := os.Getenv("XDG_CONFIG_HOME"); dir != "" {
		return filepath.Join(dir, "git/ignore")
	}
	return expandHome("~/.config/git/ignore")
}

func expandHome(path string) string {
	if rest, ok := strings.CutPrefix(path, "~/"); ok {
		return filepath.Join(os.Getenv("HOME"), rest)
	}
	return path
}

// readPlain reads a file that a configuration names. Links are followed, as they
// are in a person's home; anything but a regular file is not.
func readPlain(path string) ([]byte, error) {
	if !filepath.IsAbs(path) {
		return nil, os.ErrNotExist
	}
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readBounded(f, maxExcludes)
}
