//go:build linux

// Package source reads the secrets of credentials.
//
// It promises that a secret is read at each use, so that a rotation needs no restart,
// that a file others can read or replace is refused, that a command gets no more than
// PATH and HOME and is gone with its children when it is read, and that no error holds
// anything of what was read.
//
// What it does not protect against: whoever has the Stem's uid, or root, can read the
// same sources and the Stem's memory. The kernel may write memory to swap.
package source

import (
	"context"
	"errors"
	"os"
	"sync"

	"tendril/credential"
	"tendril/fault"
)

// Reader reads secrets. It is safe for concurrent use.
type Reader struct {
	mu       sync.Mutex
	commands map[string]*command // by their words
}

// New returns a Reader. It has to be closed.
func New() *Reader { return &Reader{commands: map[string]*command{}} }

// Close overwrites what the Reader has in memory.
func (r *Reader) Close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.commands {
		c.forget()
	}
}

// Read returns the secret as its source has it now, or, of a command, had it within the
// last 30 seconds. The caller closes it. An error is a fault of the kind unavailable
// that names the credential and its source.
func (r *Reader) Read(ctx context.Context, c credential.Named) (credential.Secret, error) {
	secret, err := r.read(ctx, c.Source)
	if err == nil {
		return secret, nil
	}
	refused := fault.New(fault.Unavailable, "the credential %s cannot be read from %s: %w", c.Name, c.Source, err)
	var cause *fault.Error
	if errors.As(err, &cause) {
		refused.Hint = cause.Hint
	}
	return credential.Secret{}, refused
}

func (r *Reader) read(ctx context.Context, s credential.Source) (credential.Secret, error) {
	switch {
	case s.Env != "":
		return fromEnvironment(string(s.Env))
	case s.File != "":
		return fromFile(string(s.File))
	case s.Command != nil:
		return r.command(s.Command).secret(ctx)
	case s.Age != credential.Age{}:
		return fromAge(string(s.Age.File), string(s.Age.Identity))
	}
	return credential.Secret{}, fault.New(fault.Internal, "there is no source")
}

func fromEnvironment(name string) (credential.Secret, error) {
	value, ok := os.LookupEnv(name)
	if !ok {
		return credential.Secret{}, fault.New(fault.Unavailable, "the variable is not set in the environment of the Stem").
			WithHint("start the Stem with %s set, or use another source", name)
	}
	return credential.NewSecret([]byte(value))
}

// withoutLineEnd takes one line end from the end, as an editor or a command puts it
// there.
func withoutLineEnd(bytes []byte) []byte {
	if n := len(bytes); n > 0 && bytes[n-1] == '\n' {
		bytes = bytes[:n-1]
	}
	if n := len(bytes); n > 0 && bytes[n-1] == '\r' {
		bytes = bytes[:n-1]
	}
	return bytes
}
