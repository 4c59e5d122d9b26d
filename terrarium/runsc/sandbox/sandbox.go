//go:build linux

// Package sandbox is the half of the embedded wall that links gVisor. It runs
// only in processes that `tendril` starts as a re-execution of itself:
//
//   - the keeper, one a Terrarium, which creates the sandbox, says which
//     processes it consists of, waits for its end and removes what it held;
//   - gVisor's own sentry, gofer and /proc unmounter, which gVisor starts from
//     /proc/self/exe.
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
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/log"
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
	cli.Run(nil, map[util.SubCommand]string{
		new(sentrycmd.Boot):   "",
		new(cmd.Gofer):        "",
		new(sentrycmd.Umount): "",
	}, nil)
}

func keep() error {
	control := os.NewFile(keeper.ControlFD, "control")
	status := os.NewFile(keeper.StatusFD, "status")
	unix.CloseOnExec(keeper.ControlFD)
	unix.CloseOnExec(keeper.StatusFD)
	report := json.NewEncoder(status)
	order, err := readOrder(control)
	if err != nil {
		return report.Encode(keeper.Report{Error: err.Error()})
	}
	if err := keepSandbox(order, control, report); err != nil {
		return report.Encode(keeper.Report{Error: err.Error()})
	}
	return nil
}

// readOrder reads the one line that says what to keep. What follows on the
// control pipe is nothing but its end.
func readOrder(control io.Reader) (keeper.Order, error) {
	var order keeper.Order
	line := make([]byte, 0, 4096)
	one := make([]byte, 1)
	for {
		if _, err := control.Read(one); err != nil {
			return order, fmt.Errorf("reading the order: %w", err)
		}
		if one[0] == '\n' {
			break
		}
		if line = append(line, one[0]); len(line) > keeper.MaxOrder {
			return order, fmt.Errorf("the order is longer than %d bytes", keeper.MaxOrder)
		}
	}
	if err := json.Unmarshal(line, &order); err != nil {
		return order, fmt.Errorf("reading the order: %w", err)
	}
	return order, nil
}

func keepSandbox(order keeper.Order, control io.Reader, report *json.Encoder) error {
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
	ended := make(chan error, 1)
	if err := report.Encode(keeper.Report{Sentry: box.SandboxPid(), Gofer: box.GoferPid.Load(), Created: true}); err != nil {
		return fmt.Errorf("reporting: %w", err)
	}
	if err := box.Start(conf); err != nil {
		return fmt.Errorf("starting the sandbox: %w", err)
	}
	if err := report.Encode(keeper.Report{Sentry: box.SandboxPid(), Gofer: box.GoferPid.Load(), Started: true}); err != nil {
		return fmt.Errorf("reporting: %w", err)
	}
	go func() {
		_, err := box.Wait()
		ended <- err
	}()
	stemGone := make(chan struct{})
	go func() {
		io.Copy(io.Discard, control)
		close(stemGone)
	}()
	select {
	case err = <-ended:
	case <-stemGone:
		err = errors.Join(killSandbox(box), <-ended)
	}
	return err
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
