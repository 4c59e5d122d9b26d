// Package site says where a Stem keeps what is its own, and reads the
// Botanist's file.
//
// It promises that what is used as a directory of the Stem, and every directory
// above it, can be written by nobody but its account and root, and that a file
// that decides something is either understood whole or refused with file, line
// and key ([strictyaml]). It does not protect against root, nor against another process of the
// same account.
package site

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"tendril/fault"
)

// Dirs are the directories of one site, absolute and clean.
type Dirs struct {
	Config  string // what the Botanist writes: tendril.yaml
	State   string // what the Stem remembers and caches
	Runtime string // sockets and locks; need not outlive a reboot

	uid int
}

// Find says where the directories are, and touches none of them. env looks up
// an environment variable, as [os.Getenv] does; uid is whose site it is.
//
// They are $TENDRIL_CONFIG_DIR and $TENDRIL_STATE_DIR if set; otherwise
// "tendril" in the directories of the XDG Base Directory Specification 0.8:
// $XDG_CONFIG_HOME or ~/.config, $XDG_STATE_HOME or ~/.local/state, and
// $XDG_RUNTIME_DIR, for which "runtime" in the state directory stands in where
// there is no such thing. A relative path in any of them is a fault of the kind
// invalid: the specification lets a program ignore it, and then it would quietly use
// another directory than the one that was meant.
func Find(env func(string) string, uid int) (Dirs, error) {
	dirs := Dirs{uid: uid}
	var err error
	if dirs.Config, err = find(env, "TENDRIL_CONFIG_DIR", "XDG_CONFIG_HOME", ".config"); err != nil {
		return Dirs{}, err
	}
	if dirs.State, err = find(env, "TENDRIL_STATE_DIR", "XDG_STATE_HOME", ".local/state"); err != nil {
		return Dirs{}, err
	}
	runtime, err := absolute(env, "XDG_RUNTIME_DIR")
	if err != nil {
		return Dirs{}, err
	}
	if runtime == "" {
		dirs.Runtime = filepath.Join(dirs.State, "runtime")
	} else {
		dirs.Runtime = filepath.Join(runtime, "tendril")
	}
	return dirs, nil
}

func find(env func(string) string, own, base, inHome string) (string, error) {
	dir, err := absolute(env, own)
	if dir != "" || err != nil {
		return dir, err
	}
	dir, err = absolute(env, base)
	if err != nil {
		return "", err
	}
	if dir != "" {
		return filepath.Join(dir, "tendril"), nil
	}
	home, err := absolute(env, "HOME")
	if err != nil {
		return "", err
	}
	if home == "" {
		return "", fault.New(fault.Invalid, "neither %s nor %s nor HOME is set", own, base).
			WithHint("set %s to an absolute path", own)
	}
	return filepath.Join(home, inHome, "tendril"), nil
}

// absolute returns the cleaned value of a variable, and "" if it is not set.
func absolute(env func(string) string, name string) (string, error) {
	dir := env(name)
	if dir == "" {
		return "", nil
	}
	if !filepath.IsAbs(dir) {
		return "", fault.New(fault.Invalid, "%s is not an absolute path: %q", name, clip(dir)).
			WithHint("set it to an absolute path, or unset it")
	}
	return filepath.Clean(dir), nil
}

// Prepare makes the state and runtime directories with mode 0700 where they do
// not exist, and refuses them, and the configuration directory if there is one,
// when another account than this one and root could change what is in them:
// when it owns or can write the directory or one above it. A symbolic link on
// the way is followed if it is as safe; the directory itself must not be one.
// It returns the directories with such links resolved.
func (d Dirs) Prepare() (Dirs, error) {
	var err error
	if d.State, err = prepare(d.State, d.uid, "TENDRIL_STATE_DIR"); err != nil {
		return Dirs{}, err
	}
	if d.Runtime, err = prepare(d.Runtime, d.uid, "XDG_RUNTIME_DIR"); err != nil {
		return Dirs{}, err
	}
	config, err := resolve(d.Config, d.uid)
	if errors.Is(err, fs.ErrNotExist) {
		return d, nil
	}
	if err != nil {
		return Dirs{}, withRemedy(err, "TENDRIL_CONFIG_DIR")
	}
	d.Config = config
	return d, nil
}

// prepare makes one directory. variable is the one that names another.
func prepare(dir string, uid int, variable string) (string, error) {
	resolved, err := resolve(dir, uid)
	if errors.Is(err, fs.ErrNotExist) {
		// What exists of the way is checked before anything is made in it, and
		// the whole way once more after.
		if err := checkWay(filepath.Dir(dir), uid); err != nil {
			return "", withRemedy(err, variable)
		}
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return "", fault.New(fault.Unavailable, "create %s: %w", dir, err).
				WithHint("make the directory above it writable for this account, or name another with %s", variable)
		}
		resolved, err = resolve(dir, uid)
	}
	if err != nil {
		return "", withRemedy(err, variable)
	}
	if err := checkPrivate(resolved); err != nil {
		return "", withRemedy(err, variable)
	}
	return resolved, nil
}

// withRemedy makes a fault of what is not one and gives it a hint if it has
// none.
func withRemedy(err error, variable string) error {
	var f *fault.Error
	if !errors.As(err, &f) {
		f = fault.New(fault.Unavailable, "%w", err)
	}
	if f.Hint == "" {
		f.Hint = "name another directory with " + variable
	}
	return f
}
