package main

import (
	"context"
	"io"
	"os"

	"tendril/fault"
)

// readFile reads a bounded file that the person named; - is stdin.
func readFile(ctx context.Context, name string, stdin io.Reader, most int64) ([]byte, error) {
	from := reading(ctx, name, stdin)
	defer from.Close()
	data, err := io.ReadAll(io.LimitReader(from, most+1))
	if err != nil {
		return nil, fault.New(fault.Invalid, "reading %s: %w", called(name), err)
	}
	if int64(len(data)) > most {
		return nil, fault.New(fault.Invalid, "%s is larger than %d bytes", called(name), most)
	}
	return data, nil
}

// reading reads a file that the person named; - is stdin. To open a FIFO waits for who
// writes it, so that this does not.
func reading(ctx context.Context, name string, stdin io.Reader) io.ReadCloser {
	return interruptible(ctx, func() (io.ReadCloser, error) {
		if name == "-" {
			return io.NopCloser(stdin), nil
		}
		return os.Open(name)
	})
}

func called(name string) string {
	if name == "-" {
		return "stdin"
	}
	return name
}

// interruptible is what open opens, and ends with an error when ctx ends: what is read
// may be a pipe or a terminal, on which nothing comes. The opening and reading itself is
// not waited for, because only the end of the process ends one that blocks.
func interruptible(ctx context.Context, open func() (io.ReadCloser, error)) io.ReadCloser {
	from, to := io.Pipe()
	context.AfterFunc(ctx, func() { to.CloseWithError(fault.New(fault.Unavailable, "it was interrupted")) })
	go func() {
		file, err := open()
		if err == nil {
			_, err = io.Copy(to, file)
			file.Close()
		}
		to.CloseWithError(err) // nil is the end
	}()
	return from
}
