//go:build linux

package firecracker

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"

	"tendril/fault"
)

// BootSource is what the machine starts.
type BootSource struct {
	Kernel    string `json:"kernel_image_path"`
	Initramfs string `json:"initrd_path,omitempty"`
	Args      string `json:"boot_args,omitempty"`
}

// Drive is a disk. Paths are those that Firecracker sees.
type Drive struct {
	ID       string `json:"drive_id"`
	Root     bool   `json:"is_root_device"` // it would be named on the kernel's command line
	ReadOnly bool   `json:"is_read_only"`
	Path     string `json:"path_on_host"`
}

// Machine is its size.
type Machine struct {
	Processors int   `json:"vcpu_count"` // 1, or an even number up to 32
	MemoryMiB  int64 `json:"mem_size_mib"`
	SMT        bool  `json:"smt"`
}

// MaxProcessors is the most that a machine has.
const MaxProcessors = 32

// Vsock is the machine's one way out.
type Vsock struct {
	CID  uint32 `json:"guest_cid"` // from 3 on
	Path string `json:"uds_path"`
}

// Config is a whole machine.
type Config struct {
	Boot    BootSource
	Machine Machine
	Drives  []Drive
	Vsock   Vsock
}

// Client asks one process. It is not safe for concurrent use.
type Client struct {
	socket Socket
	http   *http.Client
}

// NewClient returns the client of a process that listens at the socket, or soon will.
func NewClient(api Socket) *Client {
	c := &Client{socket: api}
	c.http = &http.Client{
		Transport: &http.Transport{
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return again(ctx, func() (net.Conn, error) { return c.socket.dial(ctx) })
			},
			DisableCompression:     true,
			MaxResponseHeaderBytes: 16 << 10,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return c
}

// Close gives the connections back.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Start describes the machine to Firecracker, starts it, and reads back what it has.
func (c *Client) Start(ctx context.Context, m Config) error {
	type request struct {
		path string
		body any
	}
	requests := []request{{"/machine-config", m.Machine}, {"/boot-source", m.Boot}}
	for _, d := range m.Drives {
		requests = append(requests, request{"/drives/" + d.ID, d})
	}
	requests = append(requests,
		request{"/vsock", m.Vsock},
		request{"/entropy", struct{}{}},
		request{"/actions", map[string]string{"action_type": "InstanceStart"}},
	)
	for _, r := range requests {
		if err := c.put(ctx, r.path, r.body); err != nil {
			return err
		}
	}
	return c.readBack(ctx, m)
}

// maxBody bounds an answer, in bytes.
const maxBody = 256 << 10

func (c *Client) put(ctx context.Context, path string, body any) error {
	data, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("asking Firecracker for %s: %w", path, err)
	}
	_, err = c.ask(ctx, http.MethodPut, path, data, http.StatusNoContent)
	return err
}

func (c *Client) ask(ctx context.Context, method, path string, body []byte, want int) ([]byte, error) {
	failed := func(err error) error { return fmt.Errorf("asking Firecracker for %s: %w", path, err) }
	request, err := http.NewRequestWithContext(ctx, method, "http://localhost"+path, bytes.NewReader(body))
	if err != nil {
		return nil, failed(err)
	}
	request.Header.Set("Accept", "application/json")
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	response, err := c.http.Do(request)
	if err != nil {
		return nil, failed(err)
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(response.Body, maxBody+1))
	if err != nil {
		return nil, failed(err)
	}
	if len(answer) > maxBody {
		return nil, failed(fmt.Errorf("the answer is longer than %d bytes", maxBody))
	}
	if response.StatusCode != want {
		return nil, fault.New(fault.Unavailable, "firecracker refused %s %s with status %d: %s", method, path, response.StatusCode, message(answer))
	}
	return answer, nil
}

// message is the text of a refusal, quoted.
func message(answer []byte) string {
	var refusal struct {
		Message string `json:"fault_message"`
	}
	const shown = 500
	if json.Unmarshal(answer, &refusal) != nil || refusal.Message == "" {
		refusal.Message = string(answer)
	}
	return fmt.Sprintf("%q", refusal.Message[:min(len(refusal.Message), shown)])
}

// applied is what Firecracker says that a machine has. Parts that are none of ours are only
// looked at for being there.
type applied struct {
	Boot     BootSource        `json:"boot-source"`
	Machine  Machine           `json:"machine-config"`
	Drives   []Drive           `json:"drives"`
	Vsock    *Vsock            `json:"vsock"`
	Networks []json.RawMessage `json:"network-interfaces"`
	Pmem     []json.RawMessage `json:"pmem"`
	Balloon  json.RawMessage   `json:"balloon"`
	MMDS     json.RawMessage   `json:"mmds-config"`
}

// readBack refuses a machine that is not the one that was described.
func (c *Client) readBack(ctx context.Context, m Config) error {
	text, err := c.ask(ctx, http.MethodGet, "/vm/config", nil, http.StatusOK)
	if err != nil {
		return err
	}
	var got applied
	if err := json.Unmarshal(text, &got); err != nil {
		return fault.New(fault.BrokenBoundary, "reading back the machine: %w", err)
	}
	return compare(got, m)
}

func compare(got applied, m Config) error {
	differs := func(what string, got, want any) error {
		return fault.New(fault.BrokenBoundary, "firecracker has the %s %+v where %+v was asked", what, got, want).WithRule("asked = applied")
	}
	switch {
	case got.Machine != m.Machine:
		return differs("machine", got.Machine, m.Machine)
	case got.Boot != m.Boot:
		return differs("boot source", got.Boot, m.Boot)
	case got.Vsock == nil || *got.Vsock != m.Vsock:
		return differs("vsock", got.Vsock, m.Vsock)
	case len(got.Networks) > 0:
		return differs("network interfaces", len(got.Networks), 0)
	case len(got.Pmem) > 0:
		return differs("persistent memory", len(got.Pmem), 0)
	case present(got.Balloon):
		return differs("balloon", string(got.Balloon[:min(len(got.Balloon), 100)]), "none")
	case present(got.MMDS):
		return differs("metadata service", string(got.MMDS[:min(len(got.MMDS), 100)]), "none")
	case len(got.Drives) != len(m.Drives):
		return differs("drives", got.Drives, m.Drives)
	}
	for i, d := range m.Drives {
		if got.Drives[i] != d {
			return differs("drive", got.Drives[i], d)
		}
	}
	return nil
}

func present(part json.RawMessage) bool { return len(part) > 0 && string(part) != "null" }
