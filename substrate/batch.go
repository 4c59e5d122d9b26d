package substrate

import (
	"bufio"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os/exec"
	"strconv"
	"strings"

	"tendril/fault"
)

// batch is one running "git cat-file --batch": objects by id, in order. What it
// returns is checked against the id, because the store may be a hostile one.
type batch struct {
	format Format
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *bufio.Reader
	cancel context.CancelFunc
}

// object is the header of an object, and its content to be read to the end
// before the next object is asked for.
type object struct {
	id, kind string
	size     int64
	left     int64
	hash     hash.Hash
	from     *bufio.Reader
}

func (g *gitDir) openBatch(ctx context.Context, format Format) (*batch, error) {
	ctx, cancel := context.WithCancel(ctx)
	// --buffer would hold an answer back until the next question.
	cmd, _, err := g.command(ctx, "cat-file", "--batch")
	if err != nil {
		cancel()
		return nil, err
	}
	in, err := cmd.StdinPipe()
	if err == nil {
		var out io.ReadCloser
		if out, err = cmd.StdoutPipe(); err == nil {
			if err = cmd.Start(); err == nil {
				return &batch{format: format, cmd: cmd, in: in, out: bufio.NewReaderSize(out, 256<<10), cancel: cancel}, nil
			}
		}
	}
	cancel()
	return nil, fmt.Errorf("start git cat-file: %w", err)
}

// Close ends the process and waits for it.
func (b *batch) Close() {
	b.in.Close()
	b.cancel()
	_ = b.cmd.Wait() // it was killed; what it did before has been checked
}

// ask requests objects; their answers come in the same order from next.
func (b *batch) ask(id string) error {
	if _, err := io.WriteString(b.in, id+"\n"); err != nil {
		return fmt.Errorf("git cat-file: %w", err)
	}
	return nil
}

// errMissing is wrapped when an object is not there.
var errMissing = errors.New("the object is missing")

// next returns the answer to the oldest question.
func (b *batch) next(id string) (*object, error) {
	line, err := b.out.ReadString('\n')
	if err != nil {
		return nil, fmt.Errorf("git cat-file ended at object %s: %w", id, err)
	}
	if line == id+" missing\n" {
		return nil, fmt.Errorf("object %s: %w", id, errMissing)
	}
	fields := strings.Fields(line)
	if len(fields) != 3 || fields[0] != id {
		return nil, fmt.Errorf("git cat-file: unexpected answer for object %s", id)
	}
	size, err := strconv.ParseInt(fields[2], 10, 64)
	if err != nil || size < 0 {
		return nil, fmt.Errorf("git cat-file: object %s has no size", id)
	}
	return &object{
		id: id, kind: fields[1], size: size, left: size,
		hash: b.format.objectHash(fields[1], size), from: b.out,
	}, nil
}

// Read reads the content. At the end it fails if the content is not what the
// object's id says.
func (o *object) Read(p []byte) (int, error) {
	if o.left == 0 {
		return 0, o.finish()
	}
	n, err := o.from.Read(p[:min(int64(len(p)), o.left)])
	o.hash.Write(p[:n])
	o.left -= int64(n)
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

func (o *object) finish() error {
	if o.from == nil {
		return io.EOF
	}
	c, err := o.from.ReadByte()
	if err != nil || c != '\n' {
		return fmt.Errorf("git cat-file: object %s does not end where it should", o.id)
	}
	o.from = nil
	if hex.EncodeToString(o.hash.Sum(nil)) != o.id {
		return fault.New(fault.Invalid, "object %s is damaged: its content has another hash", o.id).
			WithHint("run git fsck in the repository")
	}
	return io.EOF
}

// read asks for one object of the kind and reads it whole.
func (b *batch) read(id, kind string, limit int64) ([]byte, error) {
	if err := b.ask(id); err != nil {
		return nil, err
	}
	o, err := b.next(id)
	if err != nil {
		return nil, err
	}
	if o.kind != kind {
		return nil, fault.New(fault.Invalid, "object %s is a %s where a %s is needed", id, o.kind, kind)
	}
	if o.size > limit {
		return nil, fault.New(fault.Invalid, "object %s has %d bytes, at most %d are read", id, o.size, limit)
	}
	return io.ReadAll(o)
}

// drain reads what is left of an object, and so checks it.
func drain(o *object) error {
	_, err := io.Copy(io.Discard, o)
	return err
}
