//go:build linux

package dockertest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"tendril/terrarium/docker/registration"
)

// Daemon is a Docker daemon that uses nothing of the host's own.
type Daemon struct {
	Host    string // as unix:///PATH
	dir     string
	ended   chan struct{} // closed when it was reaped; nil when another process started it
	options Options
}

// Options are what a daemon is to be other than usual.
type Options struct {
	Settings map[string]any // of its configuration
	Args     []string       // more arguments
	// Around is a command that starts the daemon: the daemon and its arguments follow it.
	Around []string
	// Attributes of its process. Without them the daemon outlives the process that started it.
	Attributes *syscall.SysProcAttr
}

// Paths below the directory of a daemon.
const (
	socketFile = "s"
	pidFile    = "pid"
	logFile    = "log"
)

// At is the daemon of a directory, whoever started it.
func At(dir string) *Daemon {
	return &Daemon{Host: "unix://" + filepath.Join(dir, socketFile), dir: dir}
}

// Runtimes that a daemon has besides runsc: gVisor without tendril's settings, and
// something else.
const (
	BareRuntime  = "runsc-bare"
	FalseRuntime = "runsc-false"
)

// startTime is how long a daemon may take until it answers.
const startTime = time.Minute

// Start starts a daemon in a directory, whose path has to be short, and returns when it
// answers. It takes tendril, if it is given, as its runtime for gVisor.
func Start(dir, tendril string, o Options) (*Daemon, error) {
	d := At(dir)
	d.options = o
	if err := d.configure(tendril); err != nil {
		return nil, err
	}
	return d, d.start(o.Attributes)
}

// Again starts a daemon that was ended, with all that it had.
func (d *Daemon) Again() error { return d.start(nil) }

func (d *Daemon) configure(tendril string) error {
	config := map[string]any{}
	maps.Copy(config, d.options.Settings)
	if tendril != "" {
		link := filepath.Join(d.dir, "runsc")
		if err := os.Symlink(tendril, link); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
		runtimes := map[string]any{"runsc": map[string]any{"path": link, "runtimeArgs": registration.Args}, BareRuntime: map[string]any{"path": link}}
		if runc, err := exec.LookPath("runc"); err == nil {
			runtimes[FalseRuntime] = map[string]any{"path": runc}
		}
		config["runtimes"] = runtimes
	}
	text, err := json.Marshal(config)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(d.dir, "daemon.json"), text, 0o644) // for whoever the daemon is
}

func (d *Daemon) start(attr *syscall.SysProcAttr) error {
	log, err := os.OpenFile(filepath.Join(d.dir, logFile), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	// The daemon says on this socket when it is ready, as it does to systemd.
	notify := filepath.Join(d.dir, "ready")
	_ = os.Remove(notify) // of a daemon that was here before
	ready, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: notify, Net: "unixgram"})
	if err != nil {
		return err
	}
	defer ready.Close()
	if err := os.Chmod(notify, 0o666); err != nil {
		return err
	}
	line := slices.Concat(d.options.Around, []string{"dockerd", "--config-file", filepath.Join(d.dir, "daemon.json"),
		"--data-root", filepath.Join(d.dir, "data"), "--exec-root", filepath.Join(d.dir, "x"),
		"--pidfile", filepath.Join(d.dir, pidFile), "--host", d.Host, "--bridge", "none", "--iptables=false"}, d.options.Args)
	cmd := exec.Command(line[0], line[1:]...)
	cmd.Env = append(os.Environ(), "NOTIFY_SOCKET="+notify)
	cmd.Stdout, cmd.Stderr = log, log
	if cmd.SysProcAttr = attr; attr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan struct{})
	d.ended = ended
	go func() {
		defer close(ended)
		_ = cmd.Wait() // its end is what counts
		ready.Close()
	}()
	if err := ready.SetReadDeadline(time.Now().Add(startTime)); err != nil {
		return err
	}
	for buf := make([]byte, 4096); ; {
		n, err := ready.Read(buf)
		if err != nil {
			_ = cmd.Process.Kill() // it may have ended
			<-ended
			return fmt.Errorf("the Docker daemon did not start: %w\n%s", err, d.said())
		}
		if slices.Contains(strings.Split(string(buf[:n]), "\n"), "READY=1") {
			return nil
		}
	}
}

// said is the end of the daemon's log.
func (d *Daemon) said() string {
	text, err := os.ReadFile(filepath.Join(d.dir, logFile))
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-4<<10):])
}

// Pid is the daemon's, 0 when it does not run.
func (d *Daemon) Pid() int {
	text, err := os.ReadFile(filepath.Join(d.dir, pidFile))
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || unix.Kill(pid, 0) != nil {
		return 0
	}
	return pid
}

// Kill ends the daemon at once. Its containers may run on.
func (d *Daemon) Kill(ctx context.Context) error {
	err := d.signal(ctx, unix.SIGKILL)
	// Its containerd dies with it. Where nobody reaps that, the next daemon would take it for
	// one that runs.
	file := filepath.Join(d.dir, "x", "containerd", "containerd.pid")
	if removeErr := os.Remove(file); !errors.Is(removeErr, os.ErrNotExist) {
		err = errors.Join(err, removeErr)
	}
	return err
}

func (d *Daemon) signal(ctx context.Context, n unix.Signal) error {
	pid := d.Pid()
	if pid == 0 {
		return nil
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil // it has ended meanwhile
	}
	defer unix.Close(fd)
	if err := unix.PidfdSendSignal(fd, n, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return err
	}
	for {
		// The descriptor can be read when the process has ended (pidfd_open(2)).
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 100)
		if n > 0 {
			if d.ended != nil {
				<-d.ended // reaped: until then its number is taken
			}
			return nil
		}
		if err != nil && !errors.Is(err, unix.EINTR) {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
}

// Stop ends the daemon with its containers, and removes all that it had.
func (d *Daemon) Stop(ctx context.Context) error {
	err := d.signal(ctx, unix.SIGTERM)
	for _, pid := range d.left() {
		err = errors.Join(err, unix.Kill(pid, unix.SIGKILL))
	}
	mounts, readErr := os.ReadFile("/proc/self/mountinfo")
	err = errors.Join(err, readErr)
	var below []string
	for line := range strings.Lines(string(mounts)) {
		if f := strings.Fields(line); len(f) > 4 && strings.HasPrefix(f[4], d.dir+"/") {
			below = append(below, f[4])
		}
	}
	for _, target := range slices.Backward(below) {
		err = errors.Join(err, unix.Unmount(target, unix.MNT_DETACH))
	}
	return errors.Join(err, os.RemoveAll(d.dir))
}

// left lists the processes that work for the daemon and outlived it: they name its
// directory in their arguments.
func (d *Daemon) left() []int {
	var pids []int
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		line, err := os.ReadFile("/proc/" + e.Name() + "/cmdline")
		program, _, _ := strings.Cut(string(line), "\x00")
		if err == nil && strings.Contains(filepath.Base(program), "containerd") && strings.Contains(string(line), d.dir+"/") {
			pids = append(pids, pid)
		}
	}
	return pids
}
