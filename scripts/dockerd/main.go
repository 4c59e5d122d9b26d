//go:build linux

// Command dockerd starts a Docker daemon for tests, and ends it:
//
//	go run ./scripts/dockerd start DIR [TENDRIL]   prints the address of its socket
//	go run ./scripts/dockerd stop DIR
//
// DIR must have a short path and is removed with the daemon; TENDRIL is the program that it
// takes as its runtime for gVisor.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"tendril/terrarium/docker/dockertest"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "dockerd:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) < 2 {
		return fmt.Errorf("usage: dockerd start DIR [TENDRIL] | dockerd stop DIR")
	}
	dir, err := filepath.Abs(args[1])
	if err != nil {
		return err
	}
	switch args[0] {
	case "start":
		return start(dir, args[2:])
	case "stop":
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		return dockertest.At(dir).Stop(ctx)
	}
	return fmt.Errorf("%q is neither start nor stop", args[0])
}

func start(dir string, program []string) error {
	tendril := ""
	if len(program) > 0 {
		path, err := filepath.Abs(program[0])
		if err != nil {
			return err
		}
		tendril = path
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	daemon, err := dockertest.Start(dir, tendril, dockertest.Options{})
	if err != nil {
		return err
	}
	fmt.Println(daemon.Host)
	return nil
}
