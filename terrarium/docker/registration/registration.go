//go:build linux

// Package registration makes tendril a runtime of a Docker daemon, by which the daemon
// starts gVisor, and takes that back.
//
// It promises that everything else in the daemon's configuration stays as it is, byte for
// byte, and that nobody but root can change what the daemon would run. It restarts nothing:
// the daemon's containers are not its own.
package registration

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
	"tendril/fault"
)

// Registration is gVisor as a runtime of a Docker daemon: tendril itself, which the daemon
// calls by another name. The zero value of a field is where it usually is.
type Registration struct {
	File    string // the daemon's configuration: /etc/docker/daemon.json
	Program string // tendril; it has to be given, as an absolute path
	Link    string // by which the daemon calls it: /usr/local/lib/tendril/runsc
}

const (
	usualFile = "/etc/docker/daemon.json"
	usualLink = "/usr/local/lib/tendril/runsc"
)

// Change is what has to be done to a host, and has not been done.
type Change struct {
	Steps []string // what Apply does, one sentence each; none: it is done already
	Then  []string // what a person does after it

	apply []func() error
}

// Apply does it. A step that fails is the last one.
func (c Change) Apply() error {
	for _, do := range c.apply {
		if err := do(); err != nil {
			return err
		}
	}
	return nil
}

func (c *Change) add(do func() error, step string, args ...any) {
	c.Steps, c.apply = append(c.Steps, fmt.Sprintf(step, args...)), append(c.apply, do)
}

// SetUp says how the daemon gets the runtime. All that it has otherwise stays as it is.
func (r Registration) SetUp() (Change, error) {
	r, err := r.complete()
	if err != nil {
		return Change{}, err
	}
	var c Change
	if err := r.link(&c); err != nil {
		return Change{}, err
	}
	text, mode, err := readConfiguration(r.File)
	if err != nil {
		return Change{}, err
	}
	changed, err := register(text, r.Link)
	if err != nil {
		return Change{}, fault.New(fault.Invalid, "%s: %w", r.File, err).WithHint("mend the file, or name another one")
	}
	if !bytes.Equal(text, changed) {
		if text != nil {
			c.add(func() error { return keep(r.File, text, mode) }, "keep what %s is now in %s", r.File, backup(r.File))
		}
		c.add(func() error { return replace(r.File, changed, mode) }, "register the runtime runsc in %s, as %s", r.File, r.Link)
	}
	c.Then = []string{
		"restart the daemon, which ends its containers: systemctl restart docker",
		"see that it works: tendril terrarium list",
		"to undo it: " + r.undoing() + ", and restart the daemon again",
	}
	return c, nil
}

// undoing is the command that takes it back.
func (r Registration) undoing() string {
	command := "tendril terrarium setup gvisor --undo --write"
	if r.File != usualFile {
		command += " --config " + r.File
	}
	if r.Link != usualLink {
		command += " --link " + r.Link
	}
	return command
}

// Undo says how exactly that is taken back.
func (r Registration) Undo() (Change, error) {
	r, err := r.complete()
	if err != nil {
		return Change{}, err
	}
	var c Change
	text, mode, err := readConfiguration(r.File)
	if err != nil {
		return Change{}, err
	}
	changed, err := unregister(text, r.Link)
	if err != nil {
		return Change{}, fault.New(fault.Invalid, "%s: %w", r.File, err).WithHint("mend the file, or name another one")
	}
	before, kept := os.ReadFile(backup(r.File))
	if with, err := register(before, r.Link); kept == nil && err == nil && bytes.Equal(with, text) {
		changed = before // nobody has touched it since
	}
	switch {
	case bytes.Equal(text, changed):
	case kept != nil && empty(changed):
		c.add(func() error { return os.Remove(r.File) }, "remove %s, in which nothing else is", r.File)
	default:
		c.add(func() error { return replace(r.File, changed, mode) }, "take the runtime runsc out of %s", r.File)
	}
	if kept == nil {
		c.add(func() error { return os.Remove(backup(r.File)) }, "remove %s", backup(r.File))
	}
	if target, err := os.Readlink(r.Link); err == nil && target == r.Program {
		c.add(func() error { return os.Remove(r.Link) }, "remove the link %s", r.Link)
	}
	c.Then = []string{"restart the daemon, which ends its containers: systemctl restart docker"}
	return c, nil
}

func (r Registration) complete() (Registration, error) {
	if r.File == "" {
		r.File = usualFile
	}
	if r.Link == "" {
		r.Link = usualLink
	}
	for _, path := range []string{r.File, r.Program, r.Link} {
		if !filepath.IsAbs(path) || filepath.Clean(path) != path {
			return r, fault.New(fault.Invalid, "%q is not an absolute path", path)
		}
	}
	if !strings.HasPrefix(filepath.Base(r.Link), "runsc") {
		return r, fault.New(fault.Invalid, "tendril is a runtime when it is called runsc, not %q", filepath.Base(r.Link))
	}
	return r, nil
}

// link makes the name by which the daemon calls tendril. The daemon is root, so nobody else
// may be able to put another program there.
func (r Registration) link(c *Change) error {
	if err := onlyRoots(r.Program); err != nil {
		return err
	}
	if err := onlyRoots(existing(filepath.Dir(r.Link))); err != nil {
		return err
	}
	target, err := os.Readlink(r.Link)
	switch {
	case err == nil && target == r.Program:
		return nil
	case err == nil:
		c.add(func() error { return relink(r.Program, r.Link) }, "let %s lead to %s, not to %s", r.Link, r.Program, target)
	case errors.Is(err, fs.ErrNotExist):
		c.add(func() error {
			if err := os.MkdirAll(filepath.Dir(r.Link), 0o755); err != nil {
				return err
			}
			return relink(r.Program, r.Link)
		}, "make the link %s, which leads to %s", r.Link, r.Program)
	default:
		return fault.New(fault.Unavailable, "%s is there and no link of tendril's", r.Link).WithHint("remove it, or name another place for the link")
	}
	return nil
}

// existing is the path itself, or the nearest directory above it that is there.
func existing(path string) string {
	for path != "/" {
		if _, err := os.Lstat(path); err == nil {
			break
		}
		path = filepath.Dir(path)
	}
	return path
}

// relink puts the link in place at once.
func relink(target, link string) error {
	next := link + ".new"
	if err := os.Remove(next); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Symlink(target, next); err != nil {
		return err
	}
	return os.Rename(next, link)
}

// maxLinks is how many symbolic links a path may lead through (path_resolution(7)).
const maxLinks = 40

// onlyRoots refuses a path of which somebody but root could change what is at its end: by
// any directory on the way, by a link's target or by the file itself. That a directory is
// sticky does not help: others can put a name there before root does.
func onlyRoots(path string) error {
	refuse := func(at, why string) error {
		return fault.New(fault.Unavailable, "%s may not be what a daemon of root's runs: %s %s", path, at, why).
			WithRule("only root can change what root runs").
			WithHint("install tendril where only root can write: install -o root -m 0755 tendril /usr/local/bin/tendril")
	}
	at, rest, links := "/", strings.Split(strings.Trim(path, "/"), "/"), 0
	for {
		var st unix.Stat_t
		if err := unix.Lstat(at, &st); err != nil {
			return fault.New(fault.NotFound, "looking at %s: %w", at, err)
		}
		switch kind := st.Mode & unix.S_IFMT; {
		case st.Uid != 0:
			return refuse(at, fmt.Sprintf("belongs to uid %d", st.Uid))
		case kind == unix.S_IFLNK:
			target, err := os.Readlink(at)
			if err != nil {
				return err
			}
			if links++; links > maxLinks {
				return refuse(at, "is one of too many symbolic links")
			}
			if !filepath.IsAbs(target) {
				target = filepath.Join(filepath.Dir(at), target)
			}
			at, rest = "/", append(strings.Split(strings.Trim(filepath.Clean(target), "/"), "/"), rest...)
			continue
		case st.Mode&0o022 != 0:
			return refuse(at, "can be written by others")
		}
		rest = slices.DeleteFunc(rest, func(part string) bool { return part == "" })
		if len(rest) == 0 {
			return nil
		}
		at, rest = filepath.Join(at, rest[0]), rest[1:]
	}
}

// maxConfiguration bounds the daemon's configuration, in bytes.
const maxConfiguration = 1 << 20

// readConfiguration reads the file as it is. Nil is a file that is not there.
func readConfiguration(path string) ([]byte, fs.FileMode, error) {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, 0o644, nil
	}
	if err != nil {
		return nil, 0, fault.New(fault.Unavailable, "reading the daemon's configuration: %w", err)
	}
	if !info.Mode().IsRegular() || info.Size() > maxConfiguration {
		return nil, 0, fault.New(fault.Invalid, "%s is no file of at most %d bytes", path, maxConfiguration)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, 0, fault.New(fault.Unavailable, "reading the daemon's configuration: %w", err)
	}
	if text == nil {
		text = []byte{}
	}
	return text, info.Mode().Perm(), nil
}

func backup(file string) string { return file + ".before-tendril" }

// keep puts the text aside, if that has not been done by an earlier registration.
func keep(file string, text []byte, mode fs.FileMode) error {
	if _, err := os.Lstat(backup(file)); err == nil {
		return nil
	}
	return replaceLike(backup(file), file, text, mode)
}

func replace(file string, text []byte, mode fs.FileMode) error {
	return replaceLike(file, file, text, mode)
}

// replaceLike writes a file at once, with the mode and the owner of another, if that is
// there.
func replaceLike(file, like string, text []byte, mode fs.FileMode) (err error) {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(file), ".daemon-*")
	if err != nil {
		return fault.New(fault.Unavailable, "writing %s: %w", file, err).WithHint("run it as root")
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	_, err = f.Write(text)
	err = errors.Join(err, f.Chmod(mode))
	var st unix.Stat_t
	if unix.Stat(like, &st) == nil {
		err = errors.Join(err, f.Chown(int(st.Uid), int(st.Gid)))
	}
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("writing %s: %w", file, err)
	}
	return os.Rename(f.Name(), file)
}

// empty reports whether nothing is configured.
func empty(text []byte) bool {
	var members map[string]json.RawMessage
	return json.Unmarshal(text, &members) == nil && len(members) == 0
}
