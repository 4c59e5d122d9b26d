//go:build linux

package docker

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"tendril/fault"
	"tendril/terrarium"
	"tendril/terrarium/terrariumtest"
)

// standIn is a daemon that is in front of the real one and changes what it is asked for.
// One that echoes says on being asked that it did what it was asked for. It returns where
// it listens.
func standIn(t *testing.T, host string, echoes bool, change func(create map[string]any)) string {
	t.Helper()
	// Not t.TempDir: a socket's path may have 107 bytes.
	dir, err := os.MkdirTemp("", "tendril-standin-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket := filepath.Join(dir, "s")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	real := strings.TrimPrefix(host, "unix://")
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", real)
	}}
	var asked map[string]any
	proxy := &httputil.ReverseProxy{
		ModifyResponse: func(r *http.Response) error {
			if !echoes || r.StatusCode != http.StatusOK || !inspects.MatchString(r.Request.URL.Path) {
				return nil
			}
			return rewrite(r, func(inspect map[string]any) {
				inspect["HostConfig"] = asked["HostConfig"]
				delete(asked, "HostConfig")
				inspect["Config"] = asked
				asked = map[string]any{"HostConfig": inspect["HostConfig"]}
				for key, value := range inspect["Config"].(map[string]any) {
					asked[key] = value
				}
			})
		},
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(&url.URL{Scheme: "http", Host: "docker"}) },
		Transport: transport, FlushInterval: -1,
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/containers/create") {
			var create map[string]any
			if err := json.NewDecoder(r.Body).Decode(&create); err != nil {
				t.Error(err)
			}
			if err := json.Unmarshal(marshal(t, create), &asked); err != nil {
				t.Error(err)
			}
			change(create)
			text, err := json.Marshal(create)
			if err != nil {
				t.Error(err)
			}
			r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(text)), int64(len(text))
		}
		proxy.ServeHTTP(w, r)
	})}
	go server.Serve(listener)
	t.Cleanup(func() {
		server.Close()
		transport.CloseIdleConnections()
	})
	return "unix://" + socket
}

// inspects is the path on which a daemon is asked about one container.
var inspects = regexp.MustCompile(`/containers/[0-9a-f]+/json$`)

func marshal(t *testing.T, value any) []byte {
	text, err := json.Marshal(value)
	if err != nil {
		t.Error(err)
	}
	return text
}

func rewrite(r *http.Response, change func(map[string]any)) error {
	var body map[string]any
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		return err
	}
	change(body)
	text, err := json.Marshal(body)
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(text)), int64(len(text))
	r.Header.Set("Content-Length", strconv.Itoa(len(text)))
	return err
}

// host changes the half of a request that is about the host.
func host(change func(h map[string]any)) func(map[string]any) {
	return func(create map[string]any) { change(create["HostConfig"].(map[string]any)) }
}

func without(keys ...string) func(map[string]any) {
	return host(func(h map[string]any) {
		for _, key := range keys {
			delete(h, key)
		}
	})
}

func with(key string, value any) func(map[string]any) {
	return host(func(h map[string]any) { h[key] = value })
}

// silent are a daemon's ways to drop or change something without a word.
var silent = map[string]struct {
	change func(map[string]any)
	names  string // what the refusal has to say
}{
	"memory":                 {without("Memory", "MemorySwap"), "HostConfig.Memory"},
	"swap":                   {with("MemorySwap", -1), "HostConfig.MemorySwap"},
	"more memory":            {host(func(h map[string]any) { h["Memory"], h["MemorySwap"] = 1<<33, 1<<33 }), "HostConfig.Memory"},
	"processors":             {without("NanoCpus"), "HostConfig.NanoCPUs"},
	"processes":              {without("PidsLimit"), "HostConfig.PidsLimit"},
	"capabilities":           {without("CapDrop"), "HostConfig.CapDrop"},
	"one capability":         {with("CapAdd", []string{"CAP_NET_RAW"}), "HostConfig.CapAdd"},
	"privileges":             {with("Privileged", true), "HostConfig"},
	"new privileges":         {host(func(h map[string]any) { h["SecurityOpt"] = h["SecurityOpt"].([]any)[1:] }), "HostConfig.SecurityOpt"},
	"the filter":             {with("SecurityOpt", []string{"no-new-privileges:true", "seccomp=unconfined"}), "HostConfig.SecurityOpt"},
	"our filter":             {with("SecurityOpt", []string{"no-new-privileges:true"}), "HostConfig.SecurityOpt"},
	"the network":            {with("NetworkMode", "host"), "HostConfig.NetworkMode"},
	"the read-only root":     {without("ReadonlyRootfs"), "HostConfig.ReadonlyRootfs"},
	"the size of a place":    {host(func(h map[string]any) { h["Tmpfs"].(map[string]any)["/tmp"] = "rw,exec,nosuid,nodev,mode=1777" }), "HostConfig.Tmpfs"},
	"a place":                {host(func(h map[string]any) { delete(h["Tmpfs"].(map[string]any), "/home/sprout") }), "HostConfig.Tmpfs"},
	"shared memory":          {with("ShmSize", 1<<33), "HostConfig.ShmSize"},
	"private ipc":            {with("IpcMode", "host"), "HostConfig.IpcMode"},
	"private pids":           {with("PidMode", "host"), "HostConfig.PidMode"},
	"private control groups": {with("CgroupnsMode", "host"), "HostConfig.CgroupnsMode"},
	"limits of files":        {without("Ulimits"), "HostConfig.Ulimits"},
	"the user":               {func(c map[string]any) { delete(c, "User") }, "Config.User"},
	"the health check":       {func(c map[string]any) { delete(c, "Healthcheck") }, "Config.Healthcheck"},
	"a variable":             {func(c map[string]any) { c["Env"] = []string{"TOKEN=x"} }, "Config.Env"},
	"a volume":               {func(c map[string]any) { c["Volumes"] = map[string]any{"/srv": map[string]any{}} }, "Config.Volumes"},
	"a label":                {func(c map[string]any) { delete(c["Labels"].(map[string]any), labelRun) }, "Config.Labels"},
	"the log":                {with("LogConfig", map[string]any{"Type": "json-file"}), "HostConfig.LogConfig"},
	"read-only mounts":       {eachMount(func(m map[string]any) { delete(m, "ReadOnly") }), "HostConfig.Mounts"},
	"shown recursively":      {eachMount(func(m map[string]any) { m["BindOptions"].(map[string]any)["NonRecursive"] = false }), "HostConfig.Mounts"},
	"another mount":          {with("Binds", []string{"/etc:/srv:ro"}), "HostConfig.Binds"},
	"hidden paths":           {with("MaskedPaths", []string{}), "HostConfig.MaskedPaths"},
	"read-only paths":        {with("ReadonlyPaths", []string{}), "HostConfig.ReadonlyPaths"},
	"a device":               {with("Devices", []any{map[string]any{"PathOnHost": "/dev/null", "PathInContainer": "/dev/x", "CgroupPermissions": "rwm"}}), "HostConfig.Devices"},
	"restarting":             {with("RestartPolicy", map[string]any{"Name": "always"}), "HostConfig.RestartPolicy"},
	"a group":                {with("GroupAdd", []string{"7"}), "HostConfig.GroupAdd"},
	"the end of memory":      {with("OomScoreAdj", -900), "HostConfig.OomScoreAdj"},
}

func eachMount(change func(m map[string]any)) func(map[string]any) {
	return host(func(h map[string]any) {
		for _, m := range h["Mounts"].([]any) {
			change(m.(map[string]any))
		}
	})
}

// TestAppliedNotEchoed: a daemon that silently does something else than it was asked for
// gets no run, and nothing of it is left.
func TestAppliedNotEchoed(t *testing.T) {
	p := wall(t, runc)
	for name, c := range silent {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			lying := newProvider(Config{Host: standIn(t, p.Host, false, c.change), Stoma: p.Stoma, Site: site}, runc)
			spec := terrariumtest.HostSpec(t, "silent")
			spec.CPUs.Value = 1
			opened, err := terrarium.Validated(lying).Open(t.Context(), spec)
			if err == nil {
				t.Fatalf("a Terrarium was opened (%v)", opened.Close(t.Context()))
			}
			t.Log(err)
			if !strings.Contains(err.Error(), c.names) || !fault.Is(err, fault.BrokenBoundary) {
				t.Errorf("refused as %s, not because of %s: %v", fault.KindOf(err), c.names, err)
			}
			terrariumtest.LeavesNothing(t, spec, "after the refusal")
			p.leavesNoContainer(t, spec.Run)
		})
	}
	// The control: what it passes on unchanged works, whatever it says of it.
	for _, echoes := range []bool{false, true} {
		p.opens(t, standIn(t, p.Host, echoes, func(map[string]any) {}))
	}
}

// TestAppliedIsSeen: the same where the daemon says that it did what it was asked for. What
// has to be seen then is the kernel's answer, outside and inside.
func TestAppliedIsSeen(t *testing.T) {
	p := wall(t, runc)
	for name, names := range map[string]string{
		"memory": "memory with swap", "swap": "memory with swap", "more memory": "memory with swap", "processors": "processors", "processes": "number of processes",
		"capabilities": "bounding set", "one capability": "bounding set", "privileges": "bounding set",
		"the filter": "Seccomp", "our filter": "does not seal what it declares", "the network": "Networks", "the read-only root": "mount /", "the size of a place": "size of /tmp",
		"a place": "size of /home/sprout", "shared memory": "size of /dev/shm", "private ipc": "size of /dev/shm", "private pids": "PID 1", "private control groups": "cgroup namespace",
		"limits of files": "limit of core files", "the user": "groups", "a volume": "mount /srv", "read-only mounts": "read-only", "another mount": "mount /srv",
		"a device": "F17", "a group": "supplementary group",
	} {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			lying := newProvider(Config{Host: standIn(t, p.Host, true, silent[name].change), Stoma: p.Stoma, Site: site}, runc)
			spec := terrariumtest.HostSpec(t, "echoed")
			spec.CPUs.Value = 1
			opened, err := terrarium.Validated(lying).Open(t.Context(), spec)
			if err == nil {
				t.Fatalf("a Terrarium was opened (%v)", opened.Close(t.Context()))
			}
			t.Log(err)
			if !strings.Contains(err.Error(), names) || !fault.Is(err, fault.BrokenBoundary) {
				t.Errorf("refused as %s, not because of %s: %v", fault.KindOf(err), names, err)
			}
			terrariumtest.LeavesNothing(t, spec, "after the refusal")
			p.leavesNoContainer(t, spec.Run)
		})
	}
}

// TestWritableRoot: a root that can be written grows on the host's disk, so somebody has to
// bound it. The stand-in says that this was done, for hosts without such a storage.
func TestWritableRoot(t *testing.T) {
	p := wall(t, runc)
	spec := terrariumtest.HostSpec(t, "writable")
	spec.WritableRoot = true
	opened, err := terrarium.Validated(p).Open(t.Context(), spec)
	if err == nil {
		t.Logf("this daemon can bound it (%v)", opened.Close(t.Context()))
	} else if !fault.Is(err, fault.Unavailable) || !strings.Contains(err.Error(), "WritableRoot") {
		t.Errorf("refused as %s: %v", fault.KindOf(err), err)
	}
	p.leavesNoContainer(t, spec.Run)
	bounding := newProvider(Config{Host: standIn(t, p.Host, true, without("StorageOpt")), Stoma: p.Stoma, Site: site}, runc)
	opened, err = terrarium.Validated(bounding).Open(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	defer opened.Close(context.Background())
	for _, row := range opened.Boundary() {
		if row.Field == "WritableRoot" && (row.Applied != "true" || !strings.Contains(row.Note, "bounded to")) {
			t.Errorf("its row is %+v", row)
		}
	}
}

func (p *provider) opens(t *testing.T, host string) {
	t.Helper()
	honest := newProvider(Config{Host: host, Stoma: p.Stoma, Site: site}, runc)
	opened, err := terrarium.Validated(honest).Open(t.Context(), terrariumtest.HostSpec(t, "honest"))
	if err != nil {
		t.Fatal(err)
	}
	if err := opened.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

func (p *provider) leavesNoContainer(t *testing.T, run string) {
	t.Helper()
	found, err := p.daemon.labelled(context.Background(), nil)
	if err != nil {
		t.Error(err)
	}
	for _, c := range found {
		if strings.Contains(strings.Join(c.Names, " "), run) {
			t.Errorf("the container %s is left: %s", c.Names, c.State)
		}
	}
}
