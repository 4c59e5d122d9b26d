package main

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"runtime"
	"strings"
	"sync"
	"syscall"

	"tendril/fault"
)

// callerFlags say who asks, and where. Who is never a name: a name proves nothing.
type callerFlags struct {
	TokenFile string `placeholder:"FILE" env:"TENDRIL_TOKEN_FILE" type:"path" help:"Ask as the Pollen whose token is in this file, which nobody else can read."`
	TokenFD   *int   `name:"token-fd" placeholder:"N" help:"Ask as the Pollen whose token can be read from this descriptor."`
	Socket    string `placeholder:"PATH" env:"TENDRIL_SOCKET" type:"path" help:"Ask the tendril that serves on this socket (default: this site's, if one does)."`
}

// largestToken is more than any token has, with white space around it.
const largestToken = 4096

// caller is who asks with this command line. What it presents is read once: a
// descriptor gives it only once.
type caller struct {
	flags callerFlags
	once  sync.Once
	token *string
	err   error
}

// presents returns what the caller proves itself with; nil if it is to be judged by its
// uid alone.
func (c *caller) presents(ctx context.Context) (*string, error) {
	c.once.Do(func() { c.token, c.err = c.flags.token(ctx) })
	return c.token, c.err
}

// given says whether the caller wants to be judged by a token.
func (f callerFlags) given() bool { return f.TokenFile != "" || f.TokenFD != nil }

// token reads the caller's token. A file or descriptor without one in it is an empty
// token, which proves nothing: it is not the same as none.
func (f callerFlags) token(ctx context.Context) (*string, error) {
	if !f.given() {
		return nil, nil
	}
	from, err := f.openToken()
	if err != nil {
		return nil, err
	}
	reading := interruptible(ctx, func() (io.ReadCloser, error) { return from, nil })
	defer reading.Close()
	data, err := io.ReadAll(io.LimitReader(reading, largestToken+1))
	if err != nil {
		return nil, fault.New(fault.Invalid, "reading the token: %w", err)
	}
	if len(data) > largestToken {
		return nil, fault.New(fault.Invalid, "what is given as a token is larger than %d bytes", largestToken)
	}
	token := strings.TrimSuffix(strings.TrimSuffix(string(data), "\n"), "\r")
	return &token, nil
}

func (f callerFlags) openToken() (*os.File, error) {
	switch {
	case f.TokenFD == nil:
		return openTokenFile(f.TokenFile)
	case f.TokenFile != "":
		return nil, fault.New(fault.Invalid, "both --token-file and --token-fd are given").WithHint("leave one of them out")
	case *f.TokenFD < 0:
		return nil, fault.New(fault.Invalid, "there is no descriptor %d", *f.TokenFD)
	default:
		return os.NewFile(uintptr(*f.TokenFD), "token"), nil
	}
}

// openTokenFile refuses a token that other accounts can read: they would be the Pollen
// as well.
func openTokenFile(name string) (*os.File, error) {
	file, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0) // of a FIFO it would wait
	if err != nil {
		return nil, fault.New(fault.Invalid, "opening the token's file: %w", err)
	}
	info, err := file.Stat()
	switch {
	case err != nil:
	case !info.Mode().IsRegular():
		err = fault.New(fault.Invalid, "the token's file %s is not a regular file", name).WithHint("give a pipe by its descriptor: --token-fd N")
	case runtime.GOOS != "windows" && info.Mode().Perm()&(fs.FileMode(0o077)) != 0:
		err = fault.New(fault.Invalid, "other accounts can read or write %s (mode %04o)", name, info.Mode().Perm()).WithHint("chmod 0600 %s", name)
	default:
		return file, nil
	}
	return nil, errors.Join(err, file.Close())
}
