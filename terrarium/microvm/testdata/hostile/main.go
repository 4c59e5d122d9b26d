//go:build linux

// Command hostile is the first process of a guest that does not do what the Stoma does.
// What it does instead is set by the build.
package main

import (
	"bufio"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"tendril/stoma"
)

// mode is set by the build.
var mode = "stall"

func main() {
	switch mode {
	case "stall":
		wait()
	case "exit":
		return // the kernel panics without its first process
	case "flood the console":
		for {
			fmt.Println("\x1b[2J flood", strings.Repeat("x", 1000))
		}
	}
	port, err := openPort()
	if err != nil {
		fmt.Println("hostile:", err)
		wait()
	}
	switch mode {
	case "garbage":
		fmt.Fprint(port, strings.Repeat("garbage", 1000))
	case "flood the stream":
		for {
			if _, err := port.Write(make([]byte, 64<<10)); err != nil {
				break
			}
		}
	case "another version":
		fmt.Fprint(port, "stoma\x00\x63\x00")
	case "silent after hello":
		stoma.NewSession(port, stoma.Guest, "hostile", func(*stoma.Stream, *stoma.Fields) {})
	case "lies about memory":
		serve(port, stoma.Stat{ProcessMax: 512, ScratchSize: 60 << 20, Memory: 1 << 40})
	case "lies about disk":
		serve(port, stoma.Stat{ProcessMax: 512, ScratchSize: 1 << 50, Memory: 200 << 20})
	case "lies about processes":
		serve(port, stoma.Stat{ProcessMax: 1 << 20, ScratchSize: 60 << 20, Memory: 200 << 20})
	case "lies about sizes":
		stoma.NewSession(port, stoma.Guest, "hostile", func(st *stoma.Stream, _ *stoma.Fields) {
			fmt.Fprint(st, "\xff\xff\xff\xff\xff\xff\xff\xff\x7f")
		})
	case "dies":
		serve(port, stoma.Stat{ProcessMax: 512, ScratchSize: 60 << 20, Memory: 200 << 20})
		time.Sleep(time.Second)
		return
	}
	wait()
}

func wait() {
	for {
		time.Sleep(time.Hour)
	}
}

// serve answers a stat, and nothing else.
func serve(port *os.File, stat stoma.Stat) {
	stoma.NewSession(port, stoma.Guest, "hostile", func(st *stoma.Stream, _ *stoma.Fields) {
		_ = stoma.WriteMessage(st, stat.Message())
		_ = st.CloseWrite()
	})
}

// openPort does what it takes to reach the host.
func openPort() (*os.File, error) {
	for dir, kind := range map[string]string{"/proc": "proc", "/sys": "sysfs", "/dev": "devtmpfs"} {
		if err := unix.Mount(kind, dir, kind, 0, ""); err != nil {
			return nil, err
		}
	}
	list, err := os.Open("/modules/list")
	if err != nil {
		return nil, err
	}
	for lines := bufio.NewScanner(list); lines.Scan(); {
		name, _, _ := strings.Cut(lines.Text(), " ")
		f, err := os.Open("/modules/" + name + ".ko")
		if err != nil {
			return nil, err
		}
		if err := unix.FinitModule(int(f.Fd()), "", 0); err != nil && err != syscall.EEXIST {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	for {
		fd, err := unix.Open("/dev/vport0p1", unix.O_RDWR|unix.O_NONBLOCK, 0)
		if err == nil {
			return os.NewFile(uintptr(fd), "port"), nil
		}
		time.Sleep(10 * time.Millisecond)
	}
}
