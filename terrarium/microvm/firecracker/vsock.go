//go:build linux

package firecracker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"time"

	"tendril/fault"
)

// errNobodyListens is how Firecracker says that no program of the guest listens on a port:
// it closes the connection.
var errNobodyListens = errors.New("nobody listens in the guest")

// Dial connects to a port of the guest, as soon as something listens there.
func Dial(ctx context.Context, vsock Socket, port uint32) (net.Conn, error) {
	return again(ctx, func() (net.Conn, error) {
		conn, err := vsock.dial(ctx)
		if err != nil {
			return nil, err
		}
		stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
		err = connect(conn, port)
		if !stop() && err == nil {
			err = context.Cause(ctx)
		}
		if err != nil {
			return nil, errors.Join(err, conn.Close())
		}
		return conn, nil
	})
}

// maxAnswer is "OK ", ten digits and the end of the line.
const maxAnswer = 3 + 10 + 1

// connect asks for a port. The answer is read a byte at a time: what follows it is the
// guest's.
func connect(conn io.ReadWriter, port uint32) error {
	if _, err := fmt.Fprintf(conn, "CONNECT %d\n", port); err != nil {
		return asNobody(err)
	}
	var answer []byte
	for {
		var b [1]byte
		if _, err := io.ReadFull(conn, b[:]); err != nil {
			if len(answer) > 0 {
				return fault.New(fault.BrokenBoundary, "the machine's vsock answered %q and no more: %w", answer, err)
			}
			return asNobody(err)
		}
		if b[0] == '\n' {
			break
		}
		if answer = append(answer, b[0]); len(answer) == maxAnswer {
			return badAnswer(answer)
		}
	}
	digits, ok := strings.CutPrefix(string(answer), "OK ")
	if !ok || digits == "" || strings.Trim(digits, "0123456789") != "" {
		return badAnswer(answer)
	}
	return nil
}

func badAnswer(answer []byte) error {
	return fault.New(fault.BrokenBoundary, "the machine's vsock answered %q instead of OK and a port", answer)
}

// asNobody recognises a connection that was closed without an answer.
func asNobody(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) {
		return errNobodyListens
	}
	return err
}
