package stoma

import (
	"encoding/binary"
	"fmt"
	"io"

	"tendril/fault"
)

// Limits of the wire format. Both halves keep them and hold the peer to them.
const (
	MaxPayload  = 64 << 10  // bytes in one DATA frame
	MaxHeader   = 64 << 10  // bytes in the header of an OPEN
	MaxStreams  = 1024      // streams that one side may have open
	FirstWindow = 256 << 10 // bytes that may be sent on a new stream
	MaxWindow   = 1 << 20   // bytes that may ever be outstanding on a stream
	MaxReason   = 256       // bytes of text in a RESET
)

// frameHeader is type u8, stream u32, length u32, big endian.
const frameHeader = 9

type frameType uint8

const (
	frameOpen   frameType = 1 // payload: the stream's header
	frameData   frameType = 2 // payload: at least one byte
	frameCredit frameType = 3 // no payload; the length field is the grant in bytes
	frameEOF    frameType = 4 // no payload; the sender will send no more data
	frameReset  frameType = 5 // payload: code u16, text
)

// frame is one frame as it was read. The payload is valid until the next read.
type frame struct {
	kind    frameType
	stream  uint32
	length  uint32 // the grant of a CREDIT, otherwise len(payload)
	payload []byte
}

// violation is the fault for a peer that does not keep to the format. It names
// the rule and holds no byte that the peer sent.
func violation(rule string) *fault.Error {
	return fault.New(fault.BrokenBoundary, "the other half of the Stoma broke the protocol: %s", rule).
		WithRule("stoma: " + rule).
		WithHint("the run is over; its Terrarium is closed and nothing it said after this is used")
}

// frameReader reads frames and holds one payload at most.
type frameReader struct {
	r      io.Reader
	header [frameHeader]byte
	buf    []byte
}

func newFrameReader(r io.Reader) *frameReader {
	return &frameReader{r: r, buf: make([]byte, MaxPayload)}
}

// next reads one frame. It returns io.EOF only between frames.
func (fr *frameReader) next() (frame, error) {
	if _, err := io.ReadFull(fr.r, fr.header[:]); err != nil {
		return frame{}, err
	}
	f := frame{
		kind:   frameType(fr.header[0]),
		stream: binary.BigEndian.Uint32(fr.header[1:5]),
		length: binary.BigEndian.Uint32(fr.header[5:9]),
	}
	if f.stream == 0 {
		return frame{}, violation("stream 0")
	}
	payload := f.length
	switch f.kind {
	case frameOpen:
		if f.length > MaxHeader {
			return frame{}, violation("header over 64 KiB")
		}
	case frameData:
		if f.length > MaxPayload {
			return frame{}, violation("payload over 64 KiB")
		}
		if f.length == 0 {
			return frame{}, violation("data frame without data")
		}
	case frameCredit:
		if f.length == 0 {
			return frame{}, violation("credit of nothing")
		}
		payload = 0
	case frameEOF:
		if f.length != 0 {
			return frame{}, violation("end of stream with a payload")
		}
	case frameReset:
		if f.length < 2 || f.length > 2+MaxReason {
			return frame{}, violation("reset of a wrong size")
		}
	default:
		return frame{}, violation("unknown frame type")
	}
	f.payload = fr.buf[:payload]
	if _, err := io.ReadFull(fr.r, f.payload); err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return frame{}, err
	}
	return f, nil
}

func appendFrame(b []byte, kind frameType, stream, length uint32, payload []byte) []byte {
	b = append(b, byte(kind))
	b = binary.BigEndian.AppendUint32(b, stream)
	b = binary.BigEndian.AppendUint32(b, length)
	return append(b, payload...)
}

// Code says why a stream was reset.
type Code uint16

// The codes of a RESET. A peer may send others; they mean no more than that the
// stream is over.
const (
	CodeCanceled    Code = 1 // whoever wanted it does not any more
	CodeRefused     Code = 2 // not now, or not by this half
	CodeNotFound    Code = 3 // what the header names does not exist
	CodeInvalid     Code = 4 // the header, or what was sent, makes no sense
	CodeFailed      Code = 5 // it was tried and did not work
	CodeUnsupported Code = 6 // this half does not know the kind of stream
)

// ResetError is a stream that ended before its end. Text comes from whoever
// reset it: Error escapes it, and nothing else should show it unescaped.
type ResetError struct {
	Code Code
	Text string
	Peer bool // the other half did it
}

func (e *ResetError) Error() string {
	who := "this half"
	if e.Peer {
		who = "the other half"
	}
	if e.Text == "" {
		return fmt.Sprintf("stream reset by %s (code %d)", who, e.Code)
	}
	return fmt.Sprintf("stream reset by %s (code %d): %q", who, e.Code, e.Text)
}

// cutReason makes text fit into a RESET.
func cutReason(text string) string {
	if len(text) > MaxReason {
		return text[:MaxReason]
	}
	return text
}
