package substrate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"tendril/fault"
)

// findGit finds Git once, so that a later change of PATH changes nothing.
var findGit = sync.OnceValues(func() (string, error) {
	path, err := exec.LookPath("git")
	if err == nil {
		path, err = filepath.Abs(path)
	}
	if err != nil {
		return "", fault.New(fault.Unavailable, "git is not on the PATH: %w", err).WithHint("install Git 2.38 or newer")
	}
	return path, nil
})

// gitDir is a bare Git directory of our own. Git runs only in one of these.
type gitDir struct {
	path    string // the Git directory
	work    string // an empty directory, where Git runs
	env     []string
	borrows []string // object directories that it reads besides its own
}

// sees lists the object directories that Git reads in g.
func (g *gitDir) sees() []string {
	return append([]string{filepath.Join(g.path, "objects")}, g.borrows...)
}

// gitEnv is the whole environment of a Git process. GIT_NO_LAZY_FETCH is known
// to newer versions only; a promisor remote is named in a configuration, and
// ours names none. GIT_LITERAL_PATHSPECS keeps a path from being a pattern.
func gitEnv(dir, home string) []string {
	return []string{
		"PATH=/usr/local/bin:/usr/bin:/bin",
		"HOME=" + home,
		"XDG_CONFIG_HOME=" + home,
		"LC_ALL=C",
		"TZ=UTC",
		"GIT_DIR=" + dir,
		"GIT_CONFIG_NOSYSTEM=1",
		"GIT_CONFIG_SYSTEM=/dev/null",
		"GIT_CONFIG_GLOBAL=/dev/null",
		"GIT_ATTR_NOSYSTEM=1",
		"GIT_NO_LAZY_FETCH=1",
		"GIT_NO_REPLACE_OBJECTS=1",
		"GIT_ALLOW_PROTOCOL=",
		"GIT_PROTOCOL_FROM_USER=0",
		"GIT_TERMINAL_PROMPT=0",
		"GIT_ASKPASS=/bin/false",
		"GIT_PAGER=cat",
		"GIT_OPTIONAL_LOCKS=0",
		"GIT_LITERAL_PATHSPECS=1",
	}
}

// command prepares a Git process that dies, with its children, when ctx ends.
// The last of its complaints are in the returned tail.
func (g *gitDir) command(ctx context.Context, args ...string) (*exec.Cmd, *tail, error) {
	git, err := findGit()
	if err != nil {
		return nil, nil, err
	}
	cmd := exec.CommandContext(ctx, git, args...)
	cmd.Dir = g.work
	cmd.Env = g.env
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
	complaints := &tail{limit: 4096}
	cmd.Stderr = complaints
	return cmd, complaints, nil
}

// maxOutput bounds what one Git process may answer into memory: a million changed
// paths take about 200 MB.
const maxOutput = 512 << 20

// run runs Git to its end and returns its output.
func (g *gitDir) run(ctx context.Context, stdin io.Reader, args ...string) ([]byte, error) {
	cmd, complaints, err := g.command(ctx, args...)
	if err != nil {
		return nil, err
	}
	// The kernel sends the death signal when the thread that forked ends, so
	// this goroutine keeps its thread until the process is gone.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	out := &bounded{limit: maxOutput}
	cmd.Stdin, cmd.Stdout = stdin, out
	err = cmd.Run()
	if out.over {
		return nil, fault.New(fault.Invalid, "git %s answered more than %d bytes", args[0], maxOutput)
	}
	if err != nil {
		return out.Bytes(), gitError(ctx, args, complaints, err)
	}
	return out.Bytes(), nil
}

// gitFailure is what Git itself said. Its text may quote the repository.
type gitFailure struct {
	command string
	said    string
	status  int
	err     error
}

func (e *gitFailure) Error() string {
	if e.said == "" {
		return fmt.Sprintf("git %s: %v", e.command, e.err)
	}
	return fmt.Sprintf("git %s: %v: %s", e.command, e.err, e.said)
}

func (e *gitFailure) Unwrap() error { return e.err }

func gitError(ctx context.Context, args []string, complaints *tail, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	failure := &gitFailure{command: args[0], said: complaints.String(), status: -1, err: err}
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		failure.status = exit.ExitCode()
	}
	if strings.Contains(failure.said, "No space left on device") || strings.Contains(failure.said, "Disk quota exceeded") {
		failure.err = syscall.ENOSPC
	}
	return failure
}

// isStatus reports whether Git ended by itself with a status.
func isStatus(err error, status int) bool {
	var failure *gitFailure
	return errors.As(err, &failure) && failure.status == status
}

// tail keeps the last bytes that were written to it.
type tail struct {
	limit int
	mu    sync.Mutex
	buf   []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, p...)
	if over := len(t.buf) - t.limit; over > 0 {
		t.buf = append(t.buf[:0], t.buf[over:]...)
	}
	return len(p), nil
}

// String is the text on one line, escaped: Git quotes names of the repository.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	lines := bytes.Split(bytes.TrimSpace(t.buf), []byte("\n"))
	return Escape(string(bytes.Join(lines, []byte("; "))))
}

// bounded is a buffer that refuses to grow past its limit, which ends the
// process that writes to it.
type bounded struct {
	bytes.Buffer
	limit int
	over  bool
}

func (b *bounded) Write(p []byte) (int, error) {
	if b.Len()+len(p) > b.limit {
		b.over = true
		return 0, errors.New("too much output")
	}
	return b.Buffer.Write(p)
}

// removeAll is os.RemoveAll for directories of ours, which hold read-only files.
func removeAll(path string) error {
	if err := os.RemoveAll(path); err != nil {
		return fmt.Errorf("remove %s: %w", path, err)
	}
	return nil
}
