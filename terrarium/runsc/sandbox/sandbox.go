//go:build linux

// Package sandbox is the half of the embedded wall that links gVisor. It runs
// only in processes that `tendril` starts as a re-execution of itself:
//
//   - the keeper, one a Terrarium, which creates the sandbox, says which
//     processes it consists of, waits for its end and removes what it held;
//   - gVisor's own sentry, gofer and /proc unmounter, which gVisor starts from
//     /proc/self/exe;
//   - a runtime for containers, which a Docker daemon that has it registered calls by
//     the name runsc, with the commands that it needs.
//
// The keeper lives in a mount namespace of its own (and, for an ordinary user,
// in a user namespace), so whatever it mounts is gone with it. It ends when the
// Stem's end of the control pipe closes, so a Stem that was killed leaves
// nothing running.
//
// The binary has to be static: the sentry runs in an empty root, where no
// dynamic loader exists.
package sandbox

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/log"
	"gvisor.dev/gvisor/pkg/sentry/control"
	"gvisor.dev/gvisor/runsc/cli"
	"gvisor.dev/gvisor/runsc/cmd"
	"gvisor.dev/gvisor/runsc/cmd/sentry/sentrycmd"
	"gvisor.dev/gvisor/runsc/cmd/util"
	"gvisor.dev/gvisor/runsc/config"
	"gvisor.dev/gvisor/runsc/container"
	"gvisor.dev/gvisor/runsc/flag"
	"gvisor.dev/gvisor/runsc/specutils"
	"tendril/terrarium/runsc/keeper"
)

// Invoked reports whether this process was started as one of the sandbox's
// processes. Only the name decides: gVisor starts the sentry with an empty
// environment, and the /proc unmounter under the path of the executable itself.
func Invoked(argv0 string) bool {
	return strings.HasPrefix(filepath.Base(argv0), "runsc") || argv0 == specutils.ExePath
}

// Main runs the process that was asked for and never returns.
func Main() {
	if os.Args[0] == keeper.Name {
		if err := keep(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	cli.Run(nil, commands(), nil)
}

// commands are what gVisor starts, and what a container daemon asks of its runtime. gVisor's
// own program has more; what it has besides them would only make this one larger.
func commands() map[util.SubCommand]string {
	all := map[util.SubCommand]string{}
	for _, c := range []util.SubCommand{
		new(sentrycmd.Boot), new(cmd.Gofer), new(sentrycmd.Umount),
		new(cmd.Create), new(cmd.Start), new(cmd.State), new(cmd.Kill), new(cmd.Delete), new(cmd.Exec),
		new(cmd.PS), new(cmd.Events), new(cmd.Pause), new(cmd.Resume), new(cmd.Update), new(cmd.Features),
	} {
		all[c] = ""
	}
	return all
}

func keep() error {
	orders := bufio.NewReaderSize(os.NewFile(keeper.ControlFD, "control"), keeper.MaxOrder)
	// Nothing reaches the sandbox but what gVisor gives it: neither the pipes to the
	// Stem nor what the Stem itself may have inherited.
	if err := closeOnExec(); err != nil {
		return err
	}
	report := &reporter{encoder: json.NewEncoder(os.NewFile(keeper.StatusFD, "status"))}
	order, err := readOrder(orders)
	if err == nil {
		err = keepSandbox(order, orders, report)
	}
	if err != nil {
		return report.send(keeper.Report{Error: err.Error()})
	}
	return nil
}

// closeOnExec marks every descriptor above 2. The close_range(2) that could do it came
// with Linux 5.11 only.
func closeOnExec() error {
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return fmt.Errorf("closing inherited descriptors: %w", err)
	}
	for _, e := range fds {
		if fd, err := strconv.Atoi(e.Name()); err == nil && fd > 2 {
			unix.CloseOnExec(fd)
		}
	}
	return nil
}

// reporter sends reports, one at a time.
type reporter struct {
	mu      sync.Mutex
	encoder *json.Encoder
}

func (r *reporter) send(report keeper.Report) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.encoder.Encode(report)
}

// readOrder reads the first line, which says what to keep.
func readOrder(orders *bufio.Reader) (keeper.Order, error) {
	var order keeper.Order
	line, err := orders.ReadSlice('\n')
	if err != nil {
		return order, fmt.Errorf("reading the order: %w", err)
	}
	if err := json.Unmarshal(line, &order); err != nil {
		return order, fmt.Errorf("reading the order: %w", err)
	}
	return order, nil
}

func keepSandbox(order keeper.Order, orders *bufio.Reader, report *reporter) error {
	// Mounts of the host must not learn of ours, nor ours of theirs.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return fmt.Errorf("making the mount namespace private: %w", err)
	}
	log.SetTarget(&log.GoogleEmitter{Writer: &log.Writer{Next: io.Discard}})
	conf, err := configuration(order)
	if err != nil {
		return err
	}
	spec, err := specutils.ReadSpec(order.Bundle, conf)
	if err != nil {
		return fmt.Errorf("reading the bundle: %w", err)
	}
	box, err := container.New(conf, container.Args{
		ID: order.ID, Spec: spec, BundleDir: order.Bundle, Attached: true,
	})
	if err != nil {
		return fmt.Errorf("creating the sandbox: %w", err)
	}
	defer box.Destroy()
	if err := box.Start(conf); err != nil {
		return fmt.Errorf("starting the sandbox: %w", err)
	}
	if err := report.send(keeper.Report{Sentry: box.SandboxPid(), Gofer: box.GoferPid.Load(), Started: true}); err != nil {
		return fmt.Errorf("reporting: %w", err)
	}
	return tend(box, orders, report)
}

// tend reports what the sandbox's kernel counts, until the sandbox, a part of it or
// the Stem ends.
func tend(box *container.Container, orders *bufio.Reader, report *reporter) error {
	ended := make(chan error, 1)
	go func() {
		_, err := box.Wait()
		ended <- err
	}()
	goferGone, err := gone(int(box.GoferPid.Load()))
	if err != nil {
		return errors.Join(fmt.Errorf("watching the gofer: %w", err), killSandbox(box), <-ended)
	}
	stemGone := make(chan struct{})
	go func() { // ends with the process at the latest
		io.Copy(io.Discard, orders)
		close(stemGone)
	}()
	look := time.NewTicker(keeper.Look)
	defer look.Stop()
	var last keeper.Tasks
	for {
		select {
		case err := <-ended:
			return err
		case <-goferGone:
			// The sentry would not mind before it needs a file.
			return errors.Join(killSandbox(box), <-ended)
		case <-stemGone:
			return errors.Join(killSandbox(box), <-ended)
		case <-look.C:
			// Before the Stoma has made the group there is nothing to read.
			tasks, err := tasksOf(box)
			if err == nil && tasks != last {
				last = tasks
				if report.send(keeper.Report{Tasks: &tasks}) != nil {
					return errors.Join(killSandbox(box), <-ended)
				}
			}
		}
	}
}

// gone returns a channel that is closed when the process has ended; its pidfd becomes
// readable then (pidfd_open(2)).
func gone(pid int) (<-chan struct{}, error) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil, err
	}
	ended := make(chan struct{})
	go func() { // ends with the process at the latest
		defer close(ended)
		for {
			_, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, -1)
			if !errors.Is(err, unix.EINTR) {
				unix.Close(fd)
				return
			}
		}
	}()
	return ended, nil
}

func sproutFile(name string) control.CgroupControlFile {
	return control.CgroupControlFile{Controller: "pids", Path: keeper.SproutGroup, Name: name}
}

// tasksOf asks the sandbox's kernel, which counts whatever goes on inside.
func tasksOf(box *container.Container) (keeper.Tasks, error) {
	var tasks keeper.Tasks
	current, err := box.Sandbox.CgroupsReadControlFile(sproutFile("pids.current"))
	if err != nil {
		return tasks, err
	}
	if tasks.Now, err = strconv.Atoi(current); err != nil {
		return tasks, err
	}
	events, err := box.Sandbox.CgroupsReadControlFile(sproutFile("pids.events"))
	if err != nil {
		return tasks, err
	}
	tasks.Refused, err = strconv.ParseInt(strings.TrimPrefix(events, "max "), 10, 64)
	return tasks, err
}

func killSandbox(box *container.Container) error {
	pid := box.SandboxPid()
	if pid <= 0 {
		return nil
	}
	if err := unix.Kill(pid, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("killing the sandbox: %w", err)
	}
	return nil
}

// configuration applies the order's settings; what they mean is decided by the
// Stem's side.
func configuration(order keeper.Order) (*config.Config, error) {
	flags := flag.NewFlagSet("runsc", flag.ContinueOnError)
	config.RegisterFlags(flags)
	for name, value := range order.Settings {
		if err := flags.Set(name, value); err != nil {
			return nil, fmt.Errorf("gVisor setting %s: %w", name, err)
		}
	}
	conf, err := config.NewFromFlags(flags)
	if err != nil {
		return nil, fmt.Errorf("gVisor settings: %w", err)
	}
	return conf, nil
}
