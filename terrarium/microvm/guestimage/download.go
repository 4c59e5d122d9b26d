//go:build linux

package guestimage

import (
	"bytes"
	"context"
	"errors"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"tendril/fault"
)

// newest is the package that depends on the newest of Debian's kernels for clouds, which are
// small and have what a guest needs.
const newest = "linux-image-cloud-amd64"

// downloadTime bounds one question to apt, and the download of some thirty megabytes.
const downloadTime = 10 * time.Minute

// Download lets apt fetch the newest of its kernels for clouds into dir, as the account that
// asks: nothing is installed. The source that it returns names the digest that the signed
// lists of apt have for the package.
func Download(ctx context.Context, dir string) (Source, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, downloadTime, errors.New("it took too long"))
	defer cancel()
	meta, err := apt(ctx, dir, "apt-cache", "show", "--no-all-versions", newest)
	if err != nil {
		return Source{}, err
	}
	name, ok := kernelOf(meta)
	if !ok {
		return Source{}, fault.New(fault.NotFound, "apt knows no package %s that names a kernel", newest).
			WithHint("run `apt-get update`, or name a kernel yourself: --kernel-package FILE.deb, or --kernel FILE --modules DIR")
	}
	described, err := apt(ctx, dir, "apt-cache", "show", "--no-all-versions", name)
	if err != nil {
		return Source{}, err
	}
	sum, ok := sumIn(described)
	if !ok {
		return Source{}, fault.New(fault.Unavailable, "apt has no digest of the package %s", name)
	}
	if _, err := apt(ctx, dir, "apt-get", "download", "-qq", name); err != nil {
		return Source{}, err
	}
	found, err := filepath.Glob(filepath.Join(dir, "*.deb"))
	if err != nil || len(found) != 1 {
		return Source{}, fault.New(fault.Unavailable, "apt-get download left %d packages in %s, and one was asked for", len(found), dir)
	}
	return Source{Package: found[0], Digest: "sha256:" + sum}, nil
}

// apt runs one of apt's programs in dir.
func apt(ctx context.Context, dir, program string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = dir
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C"}
	cmd.WaitDelay = time.Second
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := cmd.Run(); err != nil {
		const shown = 500
		text := strings.TrimSpace(said.String())
		return "", fault.New(fault.Unavailable, "%s %s: %w (it said %q)", program, strings.Join(args, " "), errors.Join(err, context.Cause(ctx)), text[:min(len(text), shown)]).
			WithHint("run `apt-get update`, or name a kernel yourself: --kernel-package FILE.deb, or --kernel FILE --modules DIR")
	}
	return out.String(), nil
}

var (
	dependsOnKernel = regexp.MustCompile(`(?m)^Depends:(?:.*[ ,])?(linux-image-[0-9][a-z0-9.+-]*)`)
	digestLine      = regexp.MustCompile(`(?m)^SHA256: ([0-9a-f]{64})$`)
)

// kernelOf is the kernel's package in what `apt-cache show` says of one that depends on it.
func kernelOf(text string) (string, bool) {
	match := dependsOnKernel.FindStringSubmatch(text)
	if match == nil {
		return "", false
	}
	return match[1], true
}

func sumIn(text string) (string, bool) {
	match := digestLine.FindStringSubmatch(text)
	if match == nil {
		return "", false
	}
	return match[1], true
}
