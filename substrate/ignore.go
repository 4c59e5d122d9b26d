package substrate

import (
	"bytes"
	"compress/zlib"
	"context"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// dropIgnored takes back new files that the ignore rules of the resulting tree
// keep out, as "git add --all" would, and returns how many. Git answers, in a
// directory of ours: an index that holds the .gitignore files, and no working
// tree at all, so that no name of the Sprout becomes a name on this host.
func (f *Fruit) dropIgnored(ctx context.Context) (int, error) {
	excludes := f.repo.local.excludes
	rules := map[string]baseEntry{}
	var asked []string
	for path := range f.fresh {
		now, err := f.tree.at(path)
		if err != nil {
			return 0, err
		}
		if now.mode == 0 {
			continue // removed again by a later record
		}
		asked = append(asked, path)
		if err := f.rulesFor(path, rules); err != nil {
			return 0, err
		}
	}
	if len(asked) == 0 || len(rules) == 0 && excludes == "" {
		return 0, nil
	}
	slices.Sort(asked)
	ignored, err := f.askIgnored(ctx, asked, rules, excludes)
	if err != nil {
		return 0, fmt.Errorf("ignore rules: %w", err)
	}
	for _, path := range ignored {
		if err := f.tree.remove(path); err != nil {
			return 0, err
		}
	}
	return len(ignored), nil
}

// rulesFor notes the .gitignore files in the directories above a path.
func (f *Fruit) rulesFor(path string, rules map[string]baseEntry) error {
	for dir := path; dir != ""; {
		dir, _ = splitPath(dir)
		file := strings.TrimPrefix(dir+"/.gitignore", "/")
		if _, ok := rules[file]; ok {
			return nil // and so are those further up
		}
		e, err := f.tree.at(file)
		if err != nil {
			return err
		}
		if e.mode == modeFile || e.mode == modeExec {
			rules[file] = baseEntry{path: file, mode: modeFile, id: e.id}
		}
	}
	return nil
}

func (f *Fruit) askIgnored(ctx context.Context, paths []string, rules map[string]baseEntry, excludes string) ([]string, error) {
	for _, e := range rules {
		if data, ok := f.ignores[e.id]; ok {
			if err := f.git.writeLoose(f.repo.Format, "blob", e.id, data); err != nil {
				return nil, err
			}
		}
	}
	var entries []baseEntry
	for _, e := range rules {
		entries = append(entries, e)
	}
	index, err := formatSkipIndex(entries, f.repo.Format)
	if err != nil {
		return nil, err
	}
	for name, data := range map[string][]byte{"index": index, "info/exclude": []byte(excludes)} {
		if err := os.WriteFile(filepath.Join(f.git.path, name), data, 0o600); err != nil {
			return nil, err
		}
	}
	// Patterns are the Sprout's, and matching can take exponential time.
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	// check-ignore does not take GIT_LITERAL_PATHSPECS; what begins with "./" is
	// no pattern either.
	git := *f.git
	git.env = append(slices.DeleteFunc(slices.Clone(git.env), func(v string) bool {
		return strings.HasPrefix(v, "GIT_LITERAL_PATHSPECS=")
	}), "GIT_WORK_TREE="+git.work)
	out, err := git.run(ctx, strings.NewReader("./"+strings.Join(paths, "\x00./")+"\x00"),
		"check-ignore", "--no-index", "-z", "--stdin")
	if err != nil && !isStatus(err, 1) { // 1: none is ignored
		return nil, err
	}
	var ignored []string
	for path := range strings.SplitSeq(string(out), "\x00") {
		if path, ok := strings.CutPrefix(path, "./"); ok {
			ignored = append(ignored, path)
		}
	}
	return ignored, nil
}

// writeLoose puts one object into g's own objects.
func (g *gitDir) writeLoose(format Format, kind, id string, data []byte) error {
	var out bytes.Buffer
	zip := zlib.NewWriter(&out)
	fmt.Fprintf(zip, "%s %d\x00", kind, len(data))
	if _, err := zip.Write(data); err != nil {
		return err
	}
	if err := zip.Close(); err != nil {
		return err
	}
	if _, err := hex.DecodeString(id); err != nil || !format.isID(id) {
		return fmt.Errorf("%q is no object id", id)
	}
	dir := filepath.Join(g.path, "objects", id[:2])
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, id[2:]), out.Bytes(), 0o600)
}
