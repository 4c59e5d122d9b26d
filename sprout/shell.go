package sprout

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

const shellSchema = `{"type":"object","properties":{
"command":{"type":"string"},
"timeout_seconds":{"type":"integer","minimum":1,"maximum":1800,"description":"default 120"}},
"required":["command"],"additionalProperties":false}`

const (
	defaultTimeout = 120
	maxTimeout     = 1800
	// A process in the background may keep the output open; it is not waited for longer.
	background = 2 * time.Second
)

var errTimeout = errors.New("timeout")

func (w *workplace) shell(ctx context.Context, input string) (string, error) {
	in := struct {
		Command string `json:"command"`
		Timeout int    `json:"timeout_seconds"`
	}{Timeout: defaultTimeout}
	if err := decode(input, &in); err != nil {
		return "", err
	}
	if in.Command == "" || in.Timeout < 1 || in.Timeout > maxTimeout {
		return "", badInput("shell takes a command, and a timeout from 1 to %d seconds", maxTimeout)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, time.Duration(in.Timeout)*time.Second, errTimeout)
	defer cancel()
	out := newExcerpt(page)
	cmd := exec.CommandContext(ctx, "sh", "-c", in.Command)
	cmd.Dir, cmd.Stdout, cmd.Stderr = w.dir, out, out
	cmd.WaitDelay = background
	// The end of a command is the end of its process group, unless one left it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error {
		if err := syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL); err != syscall.ESRCH {
			return err
		}
		return os.ErrProcessDone
	}
	err := cmd.Run()
	if ctx.Err() != nil && context.Cause(ctx) != errTimeout {
		return "", context.Cause(ctx)
	}
	text := out.String()
	if text != "" && !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return "", fmt.Errorf("%s[killed after %d seconds]", text, in.Timeout)
	case errors.Is(err, exec.ErrWaitDelay):
		return text + "[exit status 0; something that it started still runs]", nil
	case errors.As(err, &exit):
		return fmt.Sprintf("%s[%s]", text, exit.ProcessState), nil
	case err != nil:
		return "", fmt.Errorf("run sh: %w", err)
	}
	return text + "[exit status 0]", nil
}
