package stoma

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"runtime"

	"tendril/fault"
)

// ProtocolVersion is the version of the wire format. There is no negotiation:
// both halves are built together, and another version is refused.
const ProtocolVersion = 1

const magic = "stoma"

// maxHello bounds the bytes of a peer's HELLO.
const maxHello = 1 << 10

// Hello is what each half says first.
type Hello struct {
	Version string // of the program that speaks
	OS      string
	Arch    string
}

func ourHello(version string) Hello {
	return Hello{Version: version, OS: runtime.GOOS, Arch: runtime.GOARCH}
}

func appendHello(b []byte, h Hello) []byte {
	b = append(b, magic...)
	b = binary.BigEndian.AppendUint16(b, ProtocolVersion)
	fields := AppendBytes(nil, h.Version)
	fields = AppendBytes(fields, h.OS)
	fields = AppendBytes(fields, h.Arch)
	return AppendBytes(b, fields)
}

// readHello reads the peer's first exchange.
func readHello(r MessageReader) (Hello, error) {
	var preface [len(magic) + 2]byte
	if _, err := io.ReadFull(r, preface[:]); err != nil {
		return Hello{}, fmt.Errorf("before it said anything: %w", err)
	}
	if !bytes.HasPrefix(preface[:], []byte(magic)) {
		return Hello{}, violation("wrong magic")
	}
	if v := binary.BigEndian.Uint16(preface[len(magic):]); v != ProtocolVersion {
		return Hello{}, fault.New(fault.BrokenBoundary, "the other half of the Stoma speaks version %d of the protocol, this half %d", v, ProtocolVersion).
			WithRule("stoma: wrong version").
			WithHint("rebuild with `make`, so that both halves come from the same source")
	}
	f, err := ReadMessage(r, maxHello)
	if err != nil {
		return Hello{}, err
	}
	h := Hello{Version: f.Text(), OS: f.Text(), Arch: f.Text()}
	if f.End() != nil {
		return Hello{}, violation("malformed hello")
	}
	return h, nil
}
