//go:build linux

package guest

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"tendril/stoma"
)

// config is the command line of `stoma init`.
type config struct {
	uid, gid int
	overlay  *overlay
	plain    string   // the workspace, where nothing can be mounted
	disk     int64    // with plain: bytes that may be used in the workspace and the writable directories
	writable []string // directories of scratch, and where they appear
	pids     int
	listen   []listener
	ownDev   bool // /dev was made for this Terrarium
	ownRoot  bool // and so was the mount namespace's root
	machine  bool // and so was the kernel
	recover  bool // with machine: scratch holds the work of one that ended, and nothing is started
}

// overlay names the three directories of the workspace.
type overlay struct {
	lower   string // the base tree, read-only
	scratch string // a file system of its own; holds the upper layer
	target  string // where the workspace appears
}

// listener is a loopback port whose connections go to the host.
type listener struct {
	name string
	port int
}

// Version is what this half calls itself in its HELLO.
const Version = "1"

// Main runs `stoma init` with the arguments that follow init, and returns its
// exit status. It speaks on the descriptors 0 and 1 and returns when they end.
func Main(args []string) int { return report(run(args)) }

// report says how it ended, and returns the exit status.
func report(err error) int {
	if err != nil {
		fmt.Fprintf(os.Stderr, "stoma: %v\n", err)
		return 1
	}
	return 0
}

func run(args []string) error {
	cfg, err := parse(args)
	if err != nil {
		return err
	}
	if os.Getpid() != 1 {
		return errors.New("init has to be PID 1 of its PID namespace, because it ends every process that it can see")
	}
	switch {
	case cfg.plain != "" && os.Getuid() != 0:
		return begin(cfg, holdNothing)
	case cfg.plain != "":
		return begin(cfg, func(identity) error { return errors.Join(dropPrivileges(), withoutClone3()) })
	case cfg.machine:
		return beginMachine(cfg)
	default:
		return begin(cfg, func(identity) error { return dropPrivileges() })
	}
}

// begin makes this process ready for the Sprout and serves its carrier. Settle gives up what
// this process must not hold while the Sprout runs, or sees that it holds nothing.
func begin(cfg config, settle func(sprout identity) error) (err error) {
	var victim *victim
	if cfg.plain != "" || cfg.machine {
		if victim, err = preferCommands(); err != nil {
			return err
		}
	}
	// Before anything of the Sprout: from here on none of its processes can trace this
	// one, nor reach its descriptors through /proc.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("clear the dumpable flag: %w", err)
	}
	unix.Umask(0o022)
	carrier, err := takeStdio()
	if err != nil {
		return err
	}
	sv, err := prepare(cfg)
	if err != nil {
		return err
	}
	sv.reaper.victim = victim
	if err := settle(sv.sprout); err != nil {
		return err
	}
	if sv.sprout.ours() {
		sv.reaper.deaf = true
		shieldFromSignals() // last: settling may need a handler
	}
	return sv.serve(carrier)
}

// prepare does what needs the privileges that are dropped afterwards.
func prepare(cfg config) (*server, error) {
	sv := newServer(identity{uid: cfg.uid, gid: cfg.gid})
	sv.ownKernel, sv.shutdown = cfg.machine, cfg.recover
	if cfg.overlay != nil {
		w, err := mountWorkspace(*cfg.overlay, sv.sprout)
		if err != nil {
			return nil, err
		}
		sv.workspace = w
		for _, target := range cfg.writable {
			if err := mountWritable(cfg.overlay.scratch, target, sv.sprout); err != nil {
				return nil, err
			}
		}
		groups, err := mountGroups(cfg.overlay.scratch+"/cgroup", cfg.pids)
		if err != nil && cfg.pids > 0 {
			return nil, fmt.Errorf("limit the number of processes: %w", err)
		}
		sv.groups = groups
	}
	if cfg.plain != "" {
		w, err := plainWorkspace(cfg.plain, cfg.writable, cfg.disk)
		if err != nil {
			return nil, err
		}
		sv.workspace, sv.tasks = w, containerTasks(cfg.pids, sv.sprout)
		spareThreads()
	}
	if cfg.ownDev {
		if err := removeDevices("/dev"); err != nil {
			return nil, err
		}
	}
	if cfg.ownRoot {
		if err := enterRoot(cfg.overlay.scratch); err != nil {
			return nil, err
		}
	}
	for _, l := range cfg.listen {
		if err := sv.listen(l); err != nil {
			return nil, fmt.Errorf("listen on port %d for %s: %w", l.port, l.name, err)
		}
	}
	return sv, nil
}

// parse reads the command line of an account that is named.
func parse(args []string) (config, error) {
	cfg, err := parseFlags(args)
	if err == nil && cfg.uid == 0 {
		err = errors.New("--user UID:GID is missing")
	}
	return cfg, err
}

func parseFlags(args []string) (config, error) {
	var cfg config
	flags := flag.NewFlagSet("init", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.Func("user", "UID:GID of the Sprout", func(s string) (err error) {
		uid, gid, ok := strings.Cut(s, ":")
		if !ok {
			return errors.New("want UID:GID")
		}
		if cfg.uid, err = number(uid, 1, 1<<31-1); err != nil {
			return err
		}
		cfg.gid, err = number(gid, 1, 1<<31-1)
		return err
	})
	flags.Func("overlay", "LOWER:SCRATCH:TARGET of the workspace", func(s string) error {
		parts := strings.Split(s, ":")
		if len(parts) != 3 {
			return errors.New("want LOWER:SCRATCH:TARGET")
		}
		for _, p := range parts {
			// The kernel's option string has no quoting that all kernels know.
			if !strings.HasPrefix(p, "/") || strings.ContainsAny(p, ",\\") {
				return errors.New("want three absolute paths without comma and backslash")
			}
		}
		cfg.overlay = &overlay{lower: parts[0], scratch: parts[1], target: parts[2]}
		return nil
	})
	flags.Func("plain", "the workspace, a directory with a file system of its own; nothing is mounted", func(s string) error {
		if !strings.HasPrefix(s, "/") {
			return errors.New("want an absolute path")
		}
		cfg.plain = s
		return nil
	})
	flags.Func("disk", "bytes that may be used in the plain workspace and in the writable directories", func(s string) (err error) {
		cfg.disk, err = strconv.ParseInt(s, 10, 64)
		if err == nil && cfg.disk <= 0 {
			err = errors.New("want a number above 0")
		}
		return err
	})
	flags.Func("writable", "an absolute path; a directory of the scratch file system appears there", func(s string) error {
		if !strings.HasPrefix(s, "/") {
			return errors.New("want an absolute path")
		}
		cfg.writable = append(cfg.writable, s)
		return nil
	})
	flags.BoolVar(&cfg.ownDev, "own-dev", false, "/dev belongs to this Terrarium alone: remove what is not harmless")
	flags.BoolVar(&cfg.ownRoot, "own-root", false, "keep commands from making user namespaces")
	flags.BoolVar(&cfg.machine, "machine", false, "the kernel belongs to this Terrarium alone: close what it has for others")
	flags.BoolVar(&cfg.recover, "recover", false, "hand over the work that a machine left in scratch, and start nothing")
	flags.Func("pids", "most processes and threads of the Sprout", func(s string) (err error) {
		cfg.pids, err = number(s, 1, 1<<22)
		return err
	})
	flags.Func("listen", "NAME=PORT on loopback that the host serves", func(s string) error {
		name, port, ok := strings.Cut(s, "=")
		if !ok || name == "" {
			return errors.New("want NAME=PORT")
		}
		n, err := number(port, 1, 1<<16-1)
		cfg.listen = append(cfg.listen, listener{name, n})
		return err
	})
	if err := flags.Parse(args); err != nil {
		return config{}, err
	}
	if flags.NArg() > 0 {
		return config{}, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	switch scratch := cfg.pids > 0 || len(cfg.writable) > 0; {
	case cfg.overlay != nil && cfg.plain != "":
		return config{}, errors.New("a workspace is either --plain or an --overlay")
	case cfg.overlay == nil && cfg.plain == "" && scratch:
		return config{}, errors.New("--pids and --writable need a workspace")
	case cfg.overlay == nil && cfg.ownRoot:
		return config{}, errors.New("--own-root needs --overlay: it uses its scratch")
	case cfg.machine && (cfg.overlay == nil || !cfg.ownRoot), cfg.recover && !cfg.machine:
		return config{}, errors.New("--machine needs --overlay and --own-root, and --recover needs --machine")
	case (cfg.plain != "") != (cfg.disk > 0):
		return config{}, errors.New("--plain needs --disk, and nothing else has it")
	}
	return cfg, nil
}

func number(s string, low, high int) (int, error) {
	n, err := strconv.Atoi(s)
	if err != nil || n < low || n > high {
		return 0, fmt.Errorf("%q is not a number from %d to %d", s, low, high)
	}
	return n, nil
}

// carrier is the byte stream to the host.
type carrier struct{ in, out *os.File }

func (c carrier) Read(p []byte) (int, error)  { return c.in.Read(p) }
func (c carrier) Write(p []byte) (int, error) { return c.out.Write(p) }
func (c carrier) Close() error                { return errors.Join(c.in.Close(), c.out.Close()) }

// takeStdio moves the carrier to descriptors that no command inherits and puts
// /dev/null in its place. Whatever else this process was given is closed on exec.
func takeStdio() (carrier, error) {
	var c carrier
	for i, f := range []**os.File{&c.in, &c.out} {
		fd, err := unix.FcntlInt(uintptr(i), unix.F_DUPFD_CLOEXEC, 10)
		if err != nil {
			return carrier{}, fmt.Errorf("take descriptor %d: %w", i, err)
		}
		_, _ = unix.FcntlInt(uintptr(fd), unix.F_SETPIPE_SZ, pipeSize) // where it is a pipe, more goes through it at once
		*f = os.NewFile(uintptr(fd), "carrier")
	}
	null, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return carrier{}, fmt.Errorf("open /dev/null: %w", err)
	}
	defer unix.Close(null)
	for i := range 2 {
		if err := unix.Dup3(null, i, 0); err != nil {
			return carrier{}, fmt.Errorf("replace descriptor %d: %w", i, err)
		}
	}
	return c, closeOnExec()
}

// closeOnExec marks every descriptor above 2.
func closeOnExec() error {
	if unix.CloseRange(3, ^uint(0)>>32, unix.CLOSE_RANGE_CLOEXEC) == nil {
		return nil
	}
	fds, err := os.ReadDir("/proc/self/fd")
	if errors.Is(err, os.ErrPermission) { // closed to this process too, by the flag that it cleared
		var most unix.Rlimit
		if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &most); err != nil {
			return fmt.Errorf("ask how many descriptors there can be: %w", err)
		}
		for fd := 3; fd < int(most.Cur); fd++ {
			unix.CloseOnExec(fd)
		}
		return nil
	}
	if err != nil {
		return fmt.Errorf("list descriptors: %w", err)
	}
	for _, e := range fds {
		if fd, err := strconv.Atoi(e.Name()); err == nil && fd > 2 {
			unix.CloseOnExec(fd)
		}
	}
	return nil
}

// serve speaks with the host until the carrier ends.
func (sv *server) serve(c carrier) error {
	go sv.reaper.watch()
	sv.session = stoma.NewSession(c, stoma.Guest, Version, sv.accept)
	sv.startListening()
	<-sv.session.Done()
	// A host that went away is the ordinary end: with this process everything
	// inside ends.
	err := sv.session.Err()
	if errors.Is(err, io.EOF) || errors.Is(err, unix.EPIPE) {
		return nil
	}
	return err
}
