package probe

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

var processProbes = []Probe{
	{ID: "K02", Core: true, Dimension: "process", Seal: Processes, What: "no process of another account but PID 1", Run: foreignProcesses},
	{ID: "K03", Dimension: "process", Seal: Processes, What: "no process of another account can be signalled", Run: signalOthers},
	{ID: "K27", Dimension: "process", Seal: Processes, What: "no shared memory, semaphore or message queue of others", Run: sharedMemory},
}

func foreignProcesses() Result {
	pids := processes()
	if len(pids) == 0 {
		return unknown("/proc lists no process")
	}
	var foreign []string
	for _, pid := range pids {
		uid, ok := owner(pid)
		if !ok || pid == 1 || pid == os.Getpid() {
			continue
		}
		comm, _ := read("/proc/" + strconv.Itoa(pid) + "/comm")
		line, err := read("/proc/" + strconv.Itoa(pid) + "/cmdline")
		switch {
		case int(uid) != os.Geteuid():
			foreign = append(foreign, fmt.Sprintf("%d %s of uid %d", pid, strings.TrimSpace(string(comm)), uid))
		case err == nil && len(line) == 0 && parentIsKernel(pid):
			foreign = append(foreign, fmt.Sprintf("%d %s of the kernel", pid, strings.TrimSpace(string(comm))))
		}
	}
	if len(foreign) > 0 {
		return leak("%d, such as %s", len(foreign), foreign[0])
	}
	return sealed("%d processes, PID 1 and this account's", len(pids))
}

func parentIsKernel(pid int) bool {
	v, ok := status("/proc/"+strconv.Itoa(pid)+"/status", "PPid")
	return ok && (v == "2" || v == "0")
}

func signalOthers() Result {
	var t tried
	for _, pid := range processes() {
		uid, ok := owner(pid)
		if !ok || pid == 1 || int(uid) == os.Geteuid() {
			continue
		}
		t.attempt(fmt.Sprintf("signal process %d of uid %d", pid, uid), unix.Kill(pid, 0))
		if len(t.leaks) > 4 {
			break
		}
	}
	return t.result("none")
}

func sharedMemory() Result {
	var t tried
	for _, path := range []string{"/proc/sysvipc/shm", "/proc/sysvipc/sem", "/proc/sysvipc/msg"} {
		if data, err := read(path); err == nil {
			if n := strings.Count(string(data), "\n"); n > 1 {
				t.leak(fmt.Sprintf("%s lists %d", path, n-1))
			}
		}
	}
	if names, err := list("/dev/mqueue"); err == nil && len(names) > 0 {
		t.leak("/dev/mqueue/" + names[0])
	}
	return t.result("none")
}
