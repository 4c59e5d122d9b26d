//go:build linux

package firecracker

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"tendril/fault"
	"tendril/terrarium/microvm/firecracker/firecrackertest"
)

func example() Config {
	return Config{
		Boot:    BootSource{Kernel: "/guest/kernel", Initramfs: "/guest/initramfs", Args: "console=ttyS0 -- machine vsock"},
		Machine: Machine{Processors: 2, MemoryMiB: 256},
		Drives:  []Drive{{ID: "root", ReadOnly: true, Path: "/drives/root"}, {ID: "scratch", Path: "/drives/scratch"}},
		Vsock:   Vsock{CID: 3, Path: "/run/v.sock"},
	}
}

// serve lets a server listen at a socket of this process.
func serve(t *testing.T, handler http.Handler) Socket {
	t.Helper()
	s := Socket{Dir: t.TempDir(), Name: "api.sock", PID: os.Getpid()}
	listener, err := net.Listen("unix", filepath.Join(s.Dir, s.Name))
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: handler}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(listener) // until it is closed
	}()
	t.Cleanup(func() {
		server.Close()
		<-done
	})
	return s
}

func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// TestRequestsAreThoseOfTheAPI: what is asked for is what Firecracker's own description
// permits, in the order that it needs, and nothing else.
func TestRequestsAreThoseOfTheAPI(t *testing.T) {
	server := &firecrackertest.Server{Spec: firecrackertest.Load(t)}
	client := NewClient(serve(t, server))
	defer client.Close()
	if err := client.Start(within(t), example()); err != nil {
		t.Fatal(err)
	}
	asked, wrong := server.Asked()
	for _, err := range wrong {
		t.Error(err)
	}
	want := []string{
		`PUT /machine-config {"vcpu_count":2,"mem_size_mib":256,"smt":false}`,
		`PUT /boot-source {"kernel_image_path":"/guest/kernel","initrd_path":"/guest/initramfs","boot_args":"console=ttyS0 -- machine vsock"}`,
		`PUT /drives/root {"drive_id":"root","is_root_device":false,"is_read_only":true,"path_on_host":"/drives/root"}`,
		`PUT /drives/scratch {"drive_id":"scratch","is_root_device":false,"is_read_only":false,"path_on_host":"/drives/scratch"}`,
		`PUT /vsock {"guest_cid":3,"uds_path":"/run/v.sock"}`,
		`PUT /entropy {}`,
		`PUT /actions {"action_type":"InstanceStart"}`,
		`GET /vm/config`,
	}
	if !slices.Equal(asked, want) {
		t.Errorf("asked\n%s\nwant\n%s", strings.Join(asked, "\n"), strings.Join(want, "\n"))
	}
}

// TestTheDescriptionJudges is the control: what Firecracker would refuse is refused.
func TestTheDescriptionJudges(t *testing.T) {
	spec := firecrackertest.Load(t)
	for _, c := range []struct{ method, path, body string }{
		{"PUT", "/drive/root", `{}`},
		{"GET", "/drives/root", ``},
		{"PUT", "/drives/", `{"drive_id":"root","is_root_device":false}`},
		{"PUT", "/drives/root", `{"drive_id":"root"}`},
		{"PUT", "/drives/root", `{"drive_id":"root","is_root_device":"no"}`},
		{"PUT", "/drives/root", `{"drive_id":"root","is_root_device":false,"readonly":true}`},
		{"PUT", "/machine-config", `{"vcpu_count":33,"mem_size_mib":256}`},
		{"PUT", "/machine-config", `{"vcpu_count":1.5,"mem_size_mib":256}`},
		{"PUT", "/machine-config", `{"vcpu_count":1}`},
		{"PUT", "/vsock", `{"guest_cid":2,"uds_path":"x"}`},
		{"PUT", "/actions", `{"action_type":"InstanceStop"}`},
		{"PUT", "/actions", `InstanceStart`},
		{"GET", "/version", `{}`},
	} {
		if err := spec.Request(c.method, c.path, []byte(c.body)); err == nil {
			t.Errorf("%s %s %s is permitted", c.method, c.path, c.body)
		}
	}
}

// TestAppliedIsReadBack: a machine that is not the one that was described is refused.
func TestAppliedIsReadBack(t *testing.T) {
	part := func(config map[string]any, name string) map[string]any { return config[name].(map[string]any) }
	for name, c := range map[string]struct {
		change func(map[string]any)
		names  string
	}{
		"less memory":     {func(m map[string]any) { part(m, "machine-config")["mem_size_mib"] = 128 }, "the machine "},
		"more processors": {func(m map[string]any) { part(m, "machine-config")["vcpu_count"] = 4 }, "the machine "},
		"another kernel":  {func(m map[string]any) { part(m, "boot-source")["kernel_image_path"] = "/x" }, "boot source"},
		"another command": {func(m map[string]any) { part(m, "boot-source")["boot_args"] = "init=/bin/sh" }, "boot source"},
		"a writable root": {func(m map[string]any) { m["drives"].([]any)[0].(map[string]any)["is_read_only"] = false }, "drive"},
		"another drive":   {func(m map[string]any) { m["drives"].([]any)[1].(map[string]any)["path_on_host"] = "/dev/sda" }, "drive"},
		"a drive missing": {func(m map[string]any) { m["drives"] = m["drives"].([]any)[:1] }, "drives"},
		"a drive more": {func(m map[string]any) {
			m["drives"] = append(m["drives"].([]any), map[string]any{"drive_id": "x", "is_root_device": false})
		}, "drives"},
		"no vsock":          {func(m map[string]any) { delete(m, "vsock") }, "vsock"},
		"another vsock":     {func(m map[string]any) { part(m, "vsock")["guest_cid"] = 4 }, "vsock"},
		"a network":         {func(m map[string]any) { m["network-interfaces"] = []any{map[string]any{"iface_id": "eth0"}} }, "network interfaces"},
		"persistent memory": {func(m map[string]any) { m["pmem"] = []any{map[string]any{"id": "x"}} }, "persistent memory"},
		"a balloon":         {func(m map[string]any) { m["balloon"] = map[string]any{"amount_mib": 1} }, "balloon"},
		"metadata":          {func(m map[string]any) { m["mmds-config"] = map[string]any{"version": "V2"} }, "metadata service"},
		"a machine of text": {func(m map[string]any) { m["machine-config"] = "large" }, "reading back"},
	} {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			client := NewClient(serve(t, &firecrackertest.Server{Change: c.change}))
			defer client.Close()
			if err := client.Start(within(t), example()); !fault.Is(err, fault.BrokenBoundary) || !strings.Contains(err.Error(), c.names) {
				t.Errorf("answered with %v, want a broken boundary that names %q", err, c.names)
			}
		})
	}
}

func TestRefusalsAreTold(t *testing.T) {
	for path, message := range map[string]string{
		"/boot-source": "The kernel file cannot be opened\x1b[31m", "/actions": strings.Repeat("x", 10_000),
	} {
		client := NewClient(serve(t, &firecrackertest.Server{Refuse: map[string]string{path: message}}))
		defer client.Close()
		err := client.Start(within(t), example())
		if !fault.Is(err, fault.Unavailable) || !strings.Contains(err.Error(), path) || strings.ContainsRune(err.Error(), 0x1b) || len(err.Error()) > 1000 {
			t.Errorf("a refusal of %s was told as %v", path, err)
		}
	}
}

// TestHostileAnswers: an answer that does not end, or that is none, is an error soon.
func TestHostileAnswers(t *testing.T) {
	for name, answer := range map[string]func(http.ResponseWriter) bool{
		"endless": func(w http.ResponseWriter) bool {
			w.WriteHeader(http.StatusNoContent + 1)
			for range 100 {
				if _, err := w.Write(make([]byte, 64<<10)); err != nil {
					break
				}
			}
			return true
		},
		"elsewhere": func(w http.ResponseWriter) bool {
			w.Header().Set("Location", "http://localhost/other")
			w.WriteHeader(http.StatusTemporaryRedirect)
			return true
		},
		"cut": func(w http.ResponseWriter) bool { panic(http.ErrAbortHandler) },
	} {
		t.Run(name, func(t *testing.T) {
			client := NewClient(serve(t, &firecrackertest.Server{Answer: answer}))
			defer client.Close()
			if err := client.Start(within(t), example()); err == nil {
				t.Error("it was taken for a started machine")
			}
		})
	}
}

// TestSocketsOfOthersAreNotSpokenTo: whoever put another process's socket there gets
// nothing.
func TestSocketsOfOthersAreNotSpokenTo(t *testing.T) {
	server := &firecrackertest.Server{}
	s := serve(t, server)
	s.PID++
	client := NewClient(s)
	defer client.Close()
	if err := client.Start(within(t), example()); !fault.Is(err, fault.BrokenBoundary) {
		t.Errorf("answered with %v", err)
	}
	if _, err := Dial(within(t), s, 5000); !fault.Is(err, fault.BrokenBoundary) {
		t.Errorf("the vsock was answered with %v", err)
	}
	if asked, _ := server.Asked(); len(asked) > 0 {
		t.Errorf("it was asked for %q", asked)
	}
}

func TestNobodyThereEndsWithTheContext(t *testing.T) {
	why := errors.New("the deadline")
	ctx, cancel := context.WithTimeoutCause(t.Context(), 50*time.Millisecond, why)
	defer cancel()
	client := NewClient(Socket{Dir: t.TempDir(), Name: "api.sock", PID: os.Getpid()})
	defer client.Close()
	if err := client.Start(ctx, example()); err == nil {
		t.Error("nobody started a machine")
	}
	if _, err := Dial(ctx, Socket{Dir: t.TempDir(), Name: "v.sock"}, 5000); !errors.Is(err, why) {
		t.Errorf("nobody's vsock was answered with %v", err)
	}
}
