//go:build linux

// Command firecracker stands in for Firecracker and for its jailer, by the name that it is
// started under: it answers the API, and where a machine would start it speaks for the
// guest. The jailer does what Firecracker's docs/jailer.md says.
package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"tendril/stoma"
	"tendril/terrarium/microvm/firecracker/firecrackertest"
)

// How it differs from the real one, set by the build.
var (
	version = "1.16.1"
	behave  = ""
)

func main() {
	name := filepath.Base(os.Args[0])
	run, title := firecracker, "Firecracker"
	if strings.HasPrefix(name, "jailer") {
		run, title = jailer, "Jailer"
	}
	if len(os.Args) == 2 && os.Args[1] == "--version" {
		fmt.Printf("%s v%s\n\nwith more to say\n", title, version)
		return
	}
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
}

// options reads "--name value" up to "--"; a name that is not known is an error.
func options(args []string, known ...string) (values map[string][]string, rest []string, err error) {
	values = map[string][]string{}
	for len(args) > 0 {
		if args[0] == "--" {
			return values, args[1:], nil
		}
		name, ok := strings.CutPrefix(args[0], "--")
		if !ok || len(args) < 2 || !strings.Contains(" "+strings.Join(known, " ")+" ", " "+name+" ") {
			return nil, nil, fmt.Errorf("unexpected argument %q", args[0])
		}
		values[name] = append(values[name], args[1])
		args = args[2:]
	}
	return values, nil, nil
}

func jailer(args []string) error {
	o, forwarded, err := options(args, "id", "exec-file", "uid", "gid", "chroot-base-dir", "resource-limit")
	if err != nil {
		return err
	}
	for _, name := range []string{"id", "exec-file", "uid", "gid", "chroot-base-dir"} {
		if len(o[name]) != 1 {
			return fmt.Errorf("--%s is needed once", name)
		}
	}
	id, program := o["id"][0], o["exec-file"][0]
	if len(id) > 64 || strings.Trim(id, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-") != "" {
		return fmt.Errorf("the id %q is none", id)
	}
	if !strings.Contains(filepath.Base(program), "firecracker") {
		return fmt.Errorf("the program %q is not firecracker", program)
	}
	uid, err1 := strconv.Atoi(o["uid"][0])
	gid, err2 := strconv.Atoi(o["gid"][0])
	if err1 != nil || err2 != nil {
		return fmt.Errorf("no account: %v, %v", o["uid"], o["gid"])
	}
	root := filepath.Join(o["chroot-base-dir"][0], filepath.Base(program), id, "root")
	if err := os.MkdirAll(root, 0o700); err != nil {
		return err
	}
	data, err := os.ReadFile(program)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(root, filepath.Base(program)), data, 0o755); err != nil {
		return err
	}
	for _, limit := range o["resource-limit"] {
		name, text, _ := strings.Cut(limit, "=")
		n, err := strconv.ParseUint(text, 10, 64)
		which, ok := map[string]int{"fsize": unix.RLIMIT_FSIZE, "no-file": unix.RLIMIT_NOFILE}[name]
		if err != nil || !ok {
			return fmt.Errorf("no limit: %q", limit)
		}
		if err := unix.Setrlimit(which, &unix.Rlimit{Cur: n, Max: n}); err != nil {
			return err
		}
	}
	return jail(root, "/"+filepath.Base(program), uid, gid, append([]string{"--id=" + id, "--start-time-us=1", "--start-time-cpu-us=1"}, forwarded...))
}

func jail(root, program string, uid, gid int, args []string) error {
	runtime.LockOSThread() // which has a namespace, a root and a directory of its own from now on
	steps := []func() error{
		func() error { return unix.Unshare(unix.CLONE_NEWNS) },
		func() error { return unix.Mount("", "/", "", unix.MS_PRIVATE|unix.MS_REC, "") },
		func() error { return unix.Mount(root, root, "", unix.MS_BIND|unix.MS_REC, "") },
		func() error { return os.Mkdir(root+"/old_root", 0o700) },
		func() error { return os.Chdir(root) },
		func() error { return unix.PivotRoot(".", "old_root") },
		func() error { return unix.Unmount("old_root", unix.MNT_DETACH) },
		func() error { return os.Remove("old_root") },
		func() error { return unix.Chroot(".") },
		func() error { return os.MkdirAll("/dev", 0o700) },
		func() error { return unix.Mknod("/dev/kvm", unix.S_IFCHR|0o600, int(unix.Mkdev(10, 232))) },
		func() error { return os.Chown("/dev/kvm", uid, gid) },
		func() error { return os.Chown("/", uid, gid) },
		func() error { return unix.Setgroups(nil) },
		func() error { return unix.Setresgid(gid, gid, gid) },
		func() error { return unix.Setresuid(uid, uid, uid) },
	}
	for i, step := range steps {
		if err := step(); err != nil {
			return fmt.Errorf("step %d: %w", i, err)
		}
	}
	return unix.Exec(program, append([]string{program}, args...), nil)
}

func firecracker(args []string) error {
	var split []string // "--name=value" too
	for _, arg := range args {
		name, value, ok := strings.Cut(arg, "=")
		split = append(split, name)
		if ok {
			split = append(split, value)
		}
	}
	o, _, err := options(split, "id", "api-sock", "start-time-us", "start-time-cpu-us")
	if err != nil {
		return err
	}
	if behave != "no filter" {
		if err := filter(); err != nil {
			return err
		}
	}
	listener, err := net.Listen("unix", o["api-sock"][0])
	if err != nil {
		return err
	}
	server := &firecrackertest.Server{Start: start}
	if behave == "drops the memory" {
		server.Change = func(m map[string]any) { m["machine-config"].(map[string]any)["mem_size_mib"] = 64 }
	}
	return http.Serve(listener, server)
}

// filter puts one over all threads that lets everything through: that there is one is what
// is looked at.
func filter() error {
	if _, _, errno := syscall.AllThreadsSyscall(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0); errno != 0 {
		return errno
	}
	f := []unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW}}
	p := unix.SockFprog{Len: 1, Filter: &f[0]}
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&p)))
	if errno != 0 {
		return errno
	}
	return nil
}

// start stands for the guest: it opens its drives as Firecracker would, and answers at its
// port.
func start(config map[string]any) {
	fmt.Println("the guest starts")
	sizes := map[string]int64{}
	var files []byte
	for _, d := range config["drives"].([]any) {
		drive := d.(map[string]any)
		flag := os.O_RDWR
		if drive["is_read_only"].(bool) {
			flag = os.O_RDONLY
		}
		f, err := os.OpenFile(drive["path_on_host"].(string), flag, 0)
		if err != nil {
			fmt.Println("a drive cannot be opened:", err)
			return
		}
		info, err := f.Stat() // and it stays open
		if err != nil {
			fmt.Println(err)
			return
		}
		sizes[drive["drive_id"].(string)] = info.Size()
		if drive["drive_id"] == "files" {
			files, _ = io.ReadAll(f)
		}
	}
	stat := stoma.Stat{
		ProcessMax: number(files, "--pids\x00"), ScratchSize: sizes["scratch"] - 1<<20,
		Memory: int64(config["machine-config"].(map[string]any)["mem_size_mib"].(float64))<<20 - 20<<20,
	}
	listener, err := net.Listen("unix", config["vsock"].(map[string]any)["uds_path"].(string))
	if err != nil {
		fmt.Println(err)
		return
	}
	go serve(listener, stat)
}

// number is the one that follows a text.
func number(data []byte, after string) int {
	_, rest, _ := bytes.Cut(data, []byte(after))
	digits, _, _ := bytes.Cut(rest, []byte{0})
	n, _ := strconv.Atoi(string(digits))
	return n
}

func serve(listener net.Listener, stat stoma.Stat) {
	for i := 0; ; i++ {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		if i < 2 { // the guest is not that far yet
			conn.Close()
			continue
		}
		r := bufio.NewReader(conn)
		if line, err := r.ReadString('\n'); err != nil || line != "CONNECT 5000\n" {
			fmt.Printf("the host asks for %q\n", line)
			conn.Close()
			continue
		}
		answer := "OK 1073741824\n"
		if behave == "another handshake" {
			answer = "HELLO 1\n"
		}
		if _, err := io.WriteString(conn, answer); err != nil {
			continue
		}
		stoma.NewSession(struct {
			io.Reader
			io.WriteCloser
		}{r, conn}, stoma.Guest, "stand-in", func(st *stoma.Stream, f *stoma.Fields) {
			if kind := f.Text(); kind != stoma.StreamStat {
				st.Reset(stoma.CodeUnsupported, "only a stand-in")
				return
			}
			_ = stoma.WriteMessage(st, stat.Message())
			_ = st.CloseWrite()
		})
	}
}
