//go:build linux

package docker

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"tendril/terrarium/docker/dockertest"
	"tendril/terrarium/terrariumtest"
)

// TestAsOrdinaryUser runs the tests that open Terrariums once more as somebody who may ask
// the daemon and nothing else.
func TestAsOrdinaryUser(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("this is an ordinary user already")
	}
	p, _ := onOwnDaemon(t, gvisor)
	err := errors.Join(
		os.Chown(p.daemon.socket, 0, terrariumtest.OrdinaryUID), os.Chmod(p.daemon.socket, 0o660),
		os.Chmod(filepath.Dir(p.daemon.socket), 0o711),
	)
	if err != nil {
		t.Fatal(err)
	}
	terrariumtest.AsOrdinaryUserWith(t, []string{dockertest.Variable + "=" + p.Host}, nil,
		"TestConformance", "TestReady", "TestAppliedIsSeen", "TestOldOrClosed")
}
