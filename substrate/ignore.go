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
// directory of ours: an index that holds the new files and the .gitignore files,
// and no working tree at all, so that no name of the Sprout becomes a name on
// this host.
func (f *Fruit) dropIgnored(ctx context.Context) (int, error) {
	index := map[string]baseEntry{}
	var asked []string
	rules := f.repo.local.excludes != ""
	for path := range f.fresh {
		now, err := f.tree.at(path)
		if err != nil {
			return 0, err
		}
		if now.mode == 0 {
			continue // removed again by a later record
		}
		asked = append(asked, path)
		index[path] = baseEntry{path: path, mode: now.mode, id: now.id}
		found, err := f.rulesFor(path, index)
		if err != nil {
			return 0, err
		}
		rules = rules || found
	}
	if len(asked) == 0 || !rules {
		return 0, nil
	}
	ignored, err := f.askIgnored(ctx, index)
	if err != nil {
		return 0, fmt.Errorf("ignore rules: %w", err)
	}
	n := 0
	for _, path := range asked {
		if ignored[path] {
			n++
			if err := f.tree.remove(path); err != nil {
				return 0, err
			}
		}
	}
	return n, nil
}

// rulesFor adds the .gitignore files in the directories above a path, and
// reports whether there are any.
func (f *Fruit) rulesFor(path string, index map[string]baseEntry) (found bool, err error) {
	for dir := path; dir != ""; {
		dir, _ = splitPath(dir)
		file := strings.TrimPrefix(dir+"/.gitignore", "/")
		e, err := f.tree.at(file)
		if err != nil {
			return false, err
		}
		if e.mode == modeFile || e.mode == modeExec {
			found = true
			index[file] = baseEntry{path: file, mode: e.mode, id: e.id}
		}
	}
	return found, nil
}

// askIgnored returns the paths of an index that its own .gitignore files match.
func (f *Fruit) askIgnored(ctx context.Context, index map[string]baseEntry) (map[string]bool, error) {
	var entries []baseEntry
	for _, e := range index {
		entries = append(entries, e)
		if data, ok := f.ignores[e.id]; ok {
			if err := f.git.writeLoose(f.repo.Format, "blob", e.id, data); err != nil {
				return nil, err
			}
		}
	}
	data, err := formatSkipIndex(entries, f.repo.Format)
	if err != nil {
		return nil, err
	}
	for name, data := range map[string][]byte{"index": data, "info/exclude": []byte(f.repo.local.excludes)} {
		if err := os.WriteFile(filepath.Join(f.git.path, name), data, 0o600); err != nil {
			return nil, err
		}
	}
	// Patterns are the Sprout's, and matching can take exponential time.
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	git := *f.git
	git.env = append(slices.Clip(git.env), "GIT_WORK_TREE="+git.work)
	out, err := git.run(ctx, nil, "ls-files", "-z", "--cached", "--ignored", "--exclude-standard")
	if err != nil {
		return nil, err
	}
	ignored := map[string]bool{}
	for path := range strings.SplitSeq(string(out), "\x00") {
		ignored[path] = true
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
