package substrate

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"tendril/fault"
	"tendril/hold"
)

// fetchTime bounds how long a repository elsewhere may take to answer.
const fetchTime = 15 * time.Minute

// A copy is a bare repository of ours that holds the branches of one elsewhere, and the
// branches that runs made of them. What is fetched goes below refs/heads like in its
// origin; refs/heads/tendril is ours alone.

func (s *Store) copyDir(url string) string {
	sum := sha256.Sum256([]byte(url))
	return filepath.Join(s.dir, "copies", hex.EncodeToString(sum[:16]))
}

// OpenCopy opens the copy of the repository at url, as it was fetched last.
func (s *Store) OpenCopy(ctx context.Context, url string) (*Repository, error) {
	dir := s.copyDir(url)
	if !looksLikeGitDir(dir) {
		return nil, fault.New(fault.NotFound, "nothing was fetched from %s yet", url).WithHint("a run on that Substrate fetches it")
	}
	r, err := s.Open(ctx, dir)
	if err == nil {
		r.Origin = url
	}
	return r, err
}

// Fetch brings the copy of the repository at url up to date, and makes it first if it is
// not there. Only https is spoken, redirects are not followed, and no credential is
// looked for. Fetches of one url wait for each other.
//
// How much a repository sends is bounded by time alone.
func (s *Store) Fetch(ctx context.Context, url string) error {
	if !strings.HasPrefix(url, "https://") {
		return fault.New(fault.Invalid, "%s is not an https URL", url)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, fetchTime, fault.New(fault.Unavailable, "%s did not send everything within %v", url, fetchTime))
	defer cancel()
	dir := s.copyDir(url)
	if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
		return fault.New(fault.Unavailable, "the copy of %s: %w", url, hold.NoSpace(err, s.dir))
	}
	held, err := hold.Lock(dir+".lock", unix.LOCK_EX)
	if err != nil {
		return err
	}
	defer held.Close()
	scratch, err := s.newScratch()
	if err != nil {
		return err
	}
	defer scratch.Close()
	fresh := !looksLikeGitDir(dir)
	copied := &gitDir{path: dir, work: scratch.path}
	if fresh {
		// Made elsewhere and moved, so that a copy is whole or not there.
		if copied, err = scratch.newGitDir("copy", SHA1, nil); err != nil {
			return err
		}
	}
	if err := copied.fetch(ctx, url); err != nil {
		if cause := context.Cause(ctx); cause != nil {
			return cause
		}
		return fault.New(fault.Unavailable, "fetching %s: %w", url, hold.NoSpace(err, s.dir)).
			WithHint("is it there, and can this host reach it without a credential?")
	}
	if fresh {
		if err := errors.Join(os.RemoveAll(dir), os.Rename(copied.path, dir)); err != nil {
			return fmt.Errorf("the copy of %s: %w", url, err)
		}
	}
	return nil
}

// fetch runs Git's own transport. It is the one place where Git may speak to anything, and
// it does so in a directory of ours, by our configuration.
func (g *gitDir) fetch(ctx context.Context, url string) error {
	g.env = append(gitEnv(g.path, g.work), "GIT_ALLOW_PROTOCOL=https")
	if authorities := os.Getenv("SSL_CERT_FILE"); authorities != "" { // as for Go's own programs
		g.env = append(g.env, "GIT_SSL_CAINFO="+authorities)
	}
	speak := []string{"-c", "protocol.https.allow=always", "-c", "http.followRedirects=false", "-c", "http.proxy="}
	refs, err := g.run(ctx, nil, append(speak, "ls-remote", "--symref", "--", url, "HEAD")...)
	if err != nil {
		return err
	}
	if _, err := g.run(ctx, nil, append(speak, "fetch", "--quiet", "--prune", "--no-tags", "--no-write-fetch-head", "--no-recurse-submodules",
		"--", url, "+refs/heads/*:refs/heads/*", "^refs/heads/tendril/*")...); err != nil {
		return err
	}
	first, _, _ := bytes.Cut(refs, []byte("\n"))
	head, ok := strings.CutSuffix(string(first), "\tHEAD")
	branch, symbolic := strings.CutPrefix(head, "ref: refs/heads/")
	if !ok || !symbolic {
		return nil // a detached HEAD elsewhere: a run has to name its base
	}
	_, err = g.run(ctx, nil, "symbolic-ref", "HEAD", "refs/heads/"+branch)
	return err
}
