//go:build linux

package guest_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// startPlain starts the guest half as the Sprout's account, without any privilege.
func startPlain(t testing.TB, s setup) *exec.Cmd {
	cmd := startShim(t, setup{size: s.size, few: s.few}, "")
	cmd.Env = append(cmd.Env, "STOMA_TEST_PLAIN=1")
	size := strconv.Itoa(scratchSize(s))
	args := slices.Index(cmd.Args, "--overlay")
	cmd.Args = slices.Concat(cmd.Args[:args], []string{"--plain", "/workspace", "--disk", size}, s.args)
	return cmd
}

// holdNothing becomes the Sprout's account for good.
func holdNothing() error {
	runtime.LockOSThread()
	for c := range uintptr(64) {
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); err != nil && !errors.Is(err, unix.EINVAL) {
			return err
		}
	}
	header, none := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, [2]unix.CapUserData{}
	return errors.Join(
		unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0),
		syscall.Setgroups(nil), syscall.Setresgid(sproutGID, sproutGID, sproutGID), syscall.Setresuid(sproutUID, sproutUID, sproutUID),
		unix.Capset(&header, &none[0]),
	)
}

// tarOf is a base tree as a wall that cannot mount brings it.
func tarOf(t testing.TB, dir string) io.Reader {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		link := ""
		if info.Mode()&os.ModeSymlink != 0 {
			if link, err = os.Readlink(path); err != nil {
				return err
			}
		}
		h, err := tar.FileInfoHeader(info, link)
		if err != nil {
			return err
		}
		h.Format = tar.FormatPAX // times as they are
		h.Name = strings.TrimPrefix(strings.TrimPrefix(path, dir), "/")
		if d.IsDir() {
			h.Name = strings.TrimPrefix(h.Name+"/", "/")
		}
		if h.Name == "" {
			h.Name = "./"
		}
		if err := w.WriteHeader(h); err != nil || !info.Mode().IsRegular() {
			return err
		}
		content, err := os.ReadFile(path)
		if err == nil {
			_, err = w.Write(content)
		}
		return err
	})
	if err := errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	return &b
}
