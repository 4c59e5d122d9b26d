package substrate

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Bounds on the files of a tree that Git itself acts on. Git refuses an attribute
// line from 2048 bytes on (ATTR_MAX_LINE_LENGTH).
const (
	maxSettings      = 1 << 20
	maxAttributeLine = 2047
	maxModules       = 100 // contents that Git is asked about: each is a process
)

// settingsCheck looks at the content of .gitmodules and .gitattributes in any
// spelling, since one that Git's strict check refuses would have it refuse
// everything.
type settingsCheck struct {
	strict func(modules []byte) (why string, err error)
	known  map[[sha256.Size]byte]string // what it has said, by digest of the content
}

// look returns the content to go on with, or why the entry is to be left out.
func (c *settingsCheck) look(name string, size int64, content io.Reader) (io.Reader, string, error) {
	modules, attributes := isDot(name, "gitmodules", "gi7eba"), isDot(name, "gitattributes", "gi7d29")
	if !modules && !attributes {
		return content, "", nil
	}
	if size > maxSettings {
		return nil, fmt.Sprintf("its %d bytes are more than the %d that are taken for settings of Git", size, maxSettings), nil
	}
	data := make([]byte, size)
	if _, err := io.ReadFull(content, data); err != nil {
		return nil, "", short(size, err)
	}
	if attributes {
		for line := range bytes.SplitSeq(data, []byte("\n")) {
			if len(line) > maxAttributeLine {
				return nil, fmt.Sprintf("a line has %d bytes, and Git takes at most %d", len(line), maxAttributeLine), nil
			}
		}
		return bytes.NewReader(data), "", nil
	}
	digest := sha256.Sum256(data)
	why, ok := c.known[digest]
	if !ok {
		if len(c.known) >= maxModules {
			return nil, "there are too many different .gitmodules to check", nil
		}
		var err error
		if why, err = c.strict(data); err != nil {
			return nil, "", err
		}
		c.known[digest] = why
	}
	return bytes.NewReader(data), why, nil
}

// strictly asks Git about a .gitmodules, in a pack that holds nothing else.
func (f *Fruit) strictly(ctx context.Context) func(modules []byte) (string, error) {
	return func(modules []byte) (_ string, err error) {
		dir, err := os.MkdirTemp(f.scratch.path, "modules")
		if err != nil {
			return "", err
		}
		defer func() { err = errors.Join(err, removeAll(dir)) }()
		s, err := newSpool(filepath.Join(dir, "spool"), f.repo.Format)
		if err != nil {
			return "", err
		}
		defer s.Close()
		unknown := func(string) bool { return false }
		blob, err := s.add(packBlob, int64(len(modules)), bytes.NewReader(modules), unknown)
		if err != nil {
			return "", err
		}
		entry, err := formatTree([]treeEntry{{modeFile, ".gitmodules", blob}})
		if err != nil {
			return "", err
		}
		tree, err := s.add(packTree, int64(len(entry)), bytes.NewReader(entry), unknown)
		if err != nil {
			return "", err
		}
		pack, err := os.Create(filepath.Join(dir, "modules.pack"))
		if err != nil {
			return "", err
		}
		defer pack.Close()
		if _, err := s.writePack(pack, map[string]bool{blob: true, tree: true}); err != nil {
			return "", err
		}
		_, err = f.git.run(ctx, nil, "index-pack", "--strict", pack.Name())
		var failure *gitFailure
		if errors.As(err, &failure) && failure.status >= 0 && !errors.Is(err, unix.ENOSPC) {
			return "git refuses it: " + failure.said, nil
		}
		return "", err
	}
}
