package probe

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"tendril/fault"
)

// maxLine bounds one encoded result: every byte of the detail escaped, and the rest.
const maxLine = 2*maxDetail + 128

// encode writes the one form of a result that [Parse] accepts. The detail is
// printable ASCII, so that quotes and backslashes are all there is to escape.
func (r Result) encode() []byte {
	escape := strings.NewReplacer(`\`, `\\`, `"`, `\"`)
	return []byte(`{"id":"` + escape.Replace(r.ID) + `","status":"` + string(r.Status) + `","detail":"` + escape.Replace(r.Detail) + `"}`)
}

// Parse reads what `stoma probe ID` printed: one line, with or without its newline.
// It is the Sprout's claim, so only the exact form is accepted: a known id, a known
// status, a bounded printable detail, no other key, no key twice. Anything else is a
// broken boundary.
func Parse(line []byte) (Result, error) {
	if len(line) > maxLine {
		return Result{}, fault.New(fault.BrokenBoundary, "probe answered with %d bytes, more than %d", len(line), maxLine)
	}
	line = bytes.TrimSuffix(line, []byte("\n"))
	var wire struct {
		ID     string `json:"id"`
		Status Status `json:"status"`
		Detail string `json:"detail"`
	}
	if err := json.Unmarshal(line, &wire); err != nil {
		return Result{}, fault.New(fault.BrokenBoundary, "probe answered with something else than a result: %w", err)
	}
	r := Result(wire)
	switch r.Status {
	case Sealed, Leak, Unknown, NotApplicable:
	default:
		return Result{}, fault.New(fault.BrokenBoundary, "probe answered with the status %q", r.Status)
	}
	if len(r.Detail) > maxDetail || printable(r.Detail) != r.Detail {
		return Result{}, fault.New(fault.BrokenBoundary, "probe answered with a detail that is too long or not printable")
	}
	if _, ok := Find(r.ID); !ok {
		return Result{}, fault.New(fault.BrokenBoundary, "probe answered with the id %q, which is no probe", r.ID)
	}
	// encoding/json forgives duplicate, unknown and case-folded keys; the one
	// accepted encoding does not.
	if !bytes.Equal(r.encode(), line) {
		return Result{}, fault.New(fault.BrokenBoundary, "probe answered in another form than it prints")
	}
	return r, nil
}

func (r Result) String() string { return fmt.Sprintf("%s %s: %s", r.ID, r.Status, r.Detail) }
