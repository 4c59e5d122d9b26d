//go:build linux

package guest

import (
	"errors"
	"strings"

	"golang.org/x/sys/unix"

	"tendril/stoma"
)

// defaultPath is searched when the environment has no PATH.
const defaultPath = "/usr/local/bin:/usr/bin:/bin"

// lookup finds the program of a request as the Sprout would: a name without a
// slash in PATH, anything else relative to the working directory.
func (sv *server) lookup(r stoma.ExecRequest) (string, *stoma.ExecError) {
	dir := r.Dir
	if dir == "" {
		dir = "/"
	}
	name := r.Argv[0]
	candidates := []string{name}
	if !strings.Contains(name, "/") {
		candidates = candidates[:0]
		for _, p := range strings.Split(searchPath(r.Env), ":") {
			if p == "" {
				p = "."
			}
			candidates = append(candidates, p+"/"+name)
		}
	}
	found, reason := "", stoma.NotFound
	err := sv.sprout.do(func() error {
		if err := sv.sprout.searchable(dir); err != nil {
			reason = stoma.NoDirectory
			return err
		}
		for _, c := range candidates {
			at := c
			if !strings.HasPrefix(c, "/") {
				at = dir + "/" + c
			}
			switch sv.sprout.executable(at) {
			case nil:
				found = c
				return nil
			case errNotExecutable:
				reason = stoma.NotExecutable
			}
		}
		return nil
	})
	if err != nil {
		if reason == stoma.NotFound {
			reason = stoma.ExecFailed
		}
		return "", &stoma.ExecError{Reason: reason, Detail: err.Error()}
	}
	if found == "" {
		return "", &stoma.ExecError{Reason: reason}
	}
	return found, nil
}

// searchPath returns the value of PATH: the last one, as getenv of most shells.
func searchPath(env []string) string {
	path := defaultPath
	for _, e := range env {
		if v, ok := strings.CutPrefix(e, "PATH="); ok {
			path = v
		}
	}
	return path
}

var errNotExecutable = errors.New("not executable")

// executable reports whether the identity may execute the file. The caller
// runs as it, so that the path itself is checked by the kernel.
func (id identity) executable(path string) error {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG || !id.mayExecute(&st) {
		return errNotExecutable
	}
	return nil
}

func (id identity) searchable(dir string) error {
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return unix.ENOTDIR
	}
	if !id.mayExecute(&st) {
		return errors.New("permission denied")
	}
	return nil
}

func (id identity) mayExecute(st *unix.Stat_t) bool {
	switch {
	case int(st.Uid) == id.uid:
		return st.Mode&0o100 != 0
	case int(st.Gid) == id.gid:
		return st.Mode&0o010 != 0
	default:
		return st.Mode&0o001 != 0
	}
}
