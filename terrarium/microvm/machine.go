//go:build linux

package microvm

import (
	"context"
	"errors"
	"io"
	"os"
	"time"

	"tendril/terrarium/microvm/guestimage"
	"tendril/terrarium/microvm/jail"
)

// machine is a program that emulates one.
type machine interface {
	// name is the provider's.
	name() string
	// primitive is what the wall is made of, for a person.
	primitive() string
	// carrier is how the Stoma's stream reaches the guest, as the guest names it.
	carrier() string
	// ready returns nil when the program is there and of a version that is fit for use.
	ready(ctx context.Context) error
	// needsKVM says that it emulates no processor.
	needsKVM() bool
	// identity changes when the program does.
	identity() string
	// prepare decides how the machine is started. It may make files in the plan's
	// directory, and opens what the launch closes.
	prepare(plan) (*launch, error)
}

// plan is what a machine consists of.
type plan struct {
	id        string // names it on the host
	dir       string // an empty directory for its files
	guest     guestimage.Guest
	memoryMiB int64
	cpus      int
	drives    []drive
	uid       int   // the account of its process; 0: this one's, in a user namespace
	maxFile   int64 // bytes that its process may write to one file
	kvm       bool  // the processor runs the guest itself
}

// drive is one of a machine's, in the guest's order.
type drive struct {
	name     string
	path     string
	writable bool
}

// launch is a machine that is going to be started.
type launch struct {
	order   jail.Order
	passed  []*os.File // become the process's descriptors from jail.FirstFD on
	connect func(ctx context.Context, pid int) (io.ReadWriteCloser, error)
	closers []io.Closer         // of what connect would have used, when it is not reached
	boot    time.Duration       // the Stoma has to speak within it
	how     string              // what runs the guest's code, for a person
	argv    func([]string) bool // whether a command line is that of the machine's process
	mounts  []mounted           // what it sees of the host
}

// started closes what the process has by now.
func (l *launch) started() error {
	var errs []error
	for _, f := range l.passed {
		errs = append(errs, f.Close())
	}
	l.passed = nil
	return errors.Join(errs...)
}

// abandon closes everything.
func (l *launch) abandon() error {
	errs := []error{l.started()}
	for _, c := range l.closers {
		errs = append(errs, c.Close())
	}
	l.closers = nil
	return errors.Join(errs...)
}

// open opens the drives, to be passed.
func (p plan) open() ([]*os.File, error) {
	var files []*os.File
	for _, d := range p.drives {
		flag := os.O_RDONLY
		if d.writable {
			flag = os.O_RDWR
		}
		f, err := os.OpenFile(d.path, flag, 0)
		if err != nil {
			for _, f := range files {
				err = errors.Join(err, f.Close())
			}
			return nil, err
		}
		files = append(files, f)
	}
	return files, nil
}
