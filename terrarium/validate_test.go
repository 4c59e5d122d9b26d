package terrarium_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"tendril/fault"
	"tendril/probe"
	"tendril/stoma"
	"tendril/terrarium"
)

// liar is a provider whose Terrariums are a few lines of Go: it says whatever a test
// wants it to say, and nothing stands behind it.
type liar struct {
	runtime string
	fields  map[string]terrarium.Enforcement
	seals   []string
	rows    func([]terrarium.Row) []terrarium.Row
	answer  func(id string) string // what a probe prints

	opened, closed int
}

// honest declares everything and says of everything that it was done.
func honest() *liar {
	l := &liar{
		fields: map[string]terrarium.Enforcement{},
		seals:  []string{probe.Network, probe.RootReadonly},
		rows:   func(rows []terrarium.Row) []terrarium.Row { return rows },
		answer: func(id string) string { return answer(id, probe.Sealed) },
	}
	for _, field := range terrarium.Fields() {
		l.fields[field] = terrarium.ByHost
	}
	return l
}

func answer(id string, status probe.Status) string {
	return fmt.Sprintf(`{"id":%q,"status":%q,"detail":"claimed"}`+"\n", id, status)
}

func (l *liar) Name() string { return "liar" }

func (l *liar) Capabilities() terrarium.Capabilities {
	return terrarium.Capabilities{Runtime: l.runtime, Seals: l.seals, Fields: l.fields}
}

func (l *liar) Ready(context.Context) error                 { return nil }
func (l *liar) Sweep(context.Context, string, string) error { return nil }

func (l *liar) Open(ctx context.Context, spec terrarium.Spec) (terrarium.Terrarium, error) {
	host, inside := net.Pipe()
	guest := &scriptedGuest{answer: l.answer, requests: map[uint32]*request{}}
	session := stoma.NewSession(inside, stoma.Guest, "liar", guest.accept)
	client, err := stoma.Connect(ctx, host, stoma.Options{})
	if err != nil {
		return nil, errors.Join(err, session.Close())
	}
	l.opened++
	return &claimed{liar: l, spec: spec, client: client, session: session}, nil
}

// claimed is a Terrarium of a liar.
type claimed struct {
	liar    *liar
	spec    terrarium.Spec
	client  *stoma.Client
	session *stoma.Session
}

func (c *claimed) Stoma() *stoma.Client                 { return c.client }
func (c *claimed) Exceeded() <-chan terrarium.LimitName { return nil }
func (c *claimed) Usage() terrarium.Usage               { return terrarium.Usage{} }

func (c *claimed) Boundary() []terrarium.Row {
	s := c.spec
	rows := []terrarium.Row{
		terrarium.LimitRow("CPUs", s.CPUs, s.CPUs.Value, terrarium.Constructed, terrarium.ByHost, ""),
		terrarium.LimitRow("Memory", s.Memory, s.Memory.Value, terrarium.Constructed, terrarium.ByHost, ""),
		terrarium.LimitRow("Disk", s.Disk, s.Disk.Value, terrarium.Constructed, terrarium.ByHost, ""),
		terrarium.LimitRow("Output", s.Output, s.Output.Value, terrarium.Constructed, terrarium.ByHost, ""),
		terrarium.LimitRow("Pids", s.Pids, s.Pids.Value, terrarium.Constructed, terrarium.ByHost, ""),
		terrarium.LimitRow("Wall", s.Wall, s.Wall.Value, terrarium.Constructed, terrarium.ByHost, ""),
		terrarium.LimitRow("Idle", s.Idle, s.Idle.Value, terrarium.Constructed, terrarium.ByHost, ""),
	}
	for _, field := range terrarium.Fields() {
		if !slices.ContainsFunc(rows, func(r terrarium.Row) bool { return r.Field == field }) {
			rows = append(rows, terrarium.Row{Field: field, Asked: "as asked", Applied: "as asked", Enforced: terrarium.ByHost})
		}
	}
	return c.liar.rows(rows)
}

func (c *claimed) Close(context.Context) error {
	c.liar.closed++
	err := c.client.Close()
	_ = c.session.Close() // says that the other half is gone
	return err
}

// scriptedGuest answers an exec of probes with a line for each.
type scriptedGuest struct {
	answer func(id string) string

	mu       sync.Mutex
	requests map[uint32]*request
}

type request struct {
	stoma.ExecRequest
	stdout *stoma.Stream
}

func (g *scriptedGuest) accept(st *stoma.Stream, f *stoma.Fields) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch f.Text() {
	case stoma.StreamExec:
		r, err := stoma.ParseExec(f)
		if err != nil {
			st.Reset(stoma.CodeInvalid, err.Error())
			return
		}
		g.requests[st.ID()] = &request{r, st}
	case stoma.StreamStderr:
		_ = st.CloseWrite()
	case stoma.StreamWait:
		if r := g.requests[uint32(f.UintMax(1<<32-1))]; r != nil {
			go g.run(r, st)
		}
	}
}

func (g *scriptedGuest) run(r *request, wait *stoma.Stream) {
	_ = stoma.WriteMessage(wait, stoma.Started())
	for _, id := range r.Argv[2:] { // after the program and "probe"
		_, _ = r.stdout.Write([]byte(g.answer(id)))
	}
	_ = r.stdout.CloseWrite()
	_ = stoma.WriteMessage(wait, stoma.Exit{Code: new(int)}.Message())
	_ = wait.CloseWrite()
}

func askedSpec() terrarium.Spec {
	return terrarium.Spec{
		Run:       "r-1",
		Rootfs:    terrarium.Rootfs{Host: &terrarium.HostView{Dirs: []string{"/opt/tools"}}, Authority: []byte("certificate"), Programs: []terrarium.Program{{Source: "/state/sprout", Target: "/opt/tendril/sprout"}}},
		Listeners: []terrarium.Listener{{Name: "proxy", Port: 3128, Serve: func(*stoma.Stream) {}}},
		Workspace: terrarium.Workspace{Image: "/store/base.erofs", Dir: "/runs/r-1"},
		Env:       []string{"PATH=/bin"},
		User:      terrarium.DefaultUser,
		CPUs:      terrarium.Limit[float64]{Value: 1.5},
		Memory:    terrarium.Limit[int64]{Value: 1 << 30},
		Disk:      terrarium.Limit[int64]{Value: 1 << 30, Required: true},
		Output:    terrarium.Limit[int64]{Value: 1 << 20},
		Pids:      terrarium.Limit[int]{Value: 99},
		Wall:      terrarium.Limit[time.Duration]{Value: time.Hour},
		Idle:      terrarium.Limit[time.Duration]{Value: time.Minute},
	}
}

// change changes the row of a field.
func change(field string, do func(*terrarium.Row)) func([]terrarium.Row) []terrarium.Row {
	return func(rows []terrarium.Row) []terrarium.Row {
		for i := range rows {
			if rows[i].Field == field {
				do(&rows[i])
			}
		}
		return rows
	}
}

// TestValidatedRefusesLies: each lie is refused by name, and what was opened is closed.
func TestValidatedRefusesLies(t *testing.T) {
	type lie struct {
		name  string
		tell  func(*liar)
		kind  fault.Kind
		names string
	}
	lies := []lie{
		{"a row for no field", func(l *liar) {
			l.rows = func(rows []terrarium.Row) []terrarium.Row { return append(rows, terrarium.Row{Field: "Mood.Swings"}) }
		}, fault.BrokenBoundary, "Mood.Swings"},
		{"a limit that is asked for and not kept", func(l *liar) {
			l.rows = change("Disk", func(r *terrarium.Row) { r.Enforced, r.Required = terrarium.NotKept, false })
		}, fault.Unavailable, "Disk"},
		{"a seal without a probe", func(l *liar) { l.seals = append(l.seals, "telepathy") }, fault.BrokenBoundary, "telepathy"},
		{"a seal that leaks", func(l *liar) {
			l.answer = func(id string) string {
				return answer(id, map[bool]probe.Status{true: probe.Leak, false: probe.Sealed}[id == "N07"])
			}
		}, fault.BrokenBoundary, "N07 (seal network): leak"},
		{"a seal of which nobody can tell", func(l *liar) {
			l.answer = func(id string) string {
				return answer(id, map[bool]probe.Status{true: probe.Unknown, false: probe.Sealed}[id == "W01"])
			}
		}, fault.BrokenBoundary, "W01 (seal root-readonly): unknown"},
		{"a seal that applies to nothing", func(l *liar) {
			l.answer = func(id string) string { return answer(id, probe.NotApplicable) }
		}, fault.BrokenBoundary, "no probe saw the seal"},
		{"a probe that does not answer", func(l *liar) {
			l.answer = func(id string) string {
				if id == "W01" {
					return ""
				}
				return answer(id, probe.Sealed)
			}
		}, fault.BrokenBoundary, "1 probes did not answer"},
		{"a probe that answers twice", func(l *liar) {
			l.answer = func(id string) string { return answer(id, probe.Sealed) + answer(id, probe.Sealed) }
		}, fault.BrokenBoundary, "was not asked"},
		{"a probe that answers for another", func(l *liar) {
			l.answer = func(string) string { return answer("K10", probe.Sealed) }
		}, fault.BrokenBoundary, "K10"},
		{"no answer at all", func(l *liar) { l.answer = func(string) string { return "all is well\n" } }, fault.BrokenBoundary, "something else than a result"},
		{"an endless answer", func(l *liar) { l.answer = func(string) string { return strings.Repeat("x", 1<<20) } }, fault.BrokenBoundary, "testing the boundary from inside"},
	}
	for _, field := range terrarium.Fields() {
		lies = append(lies,
			lie{"no row for " + field, func(l *liar) {
				l.rows = func(rows []terrarium.Row) []terrarium.Row {
					return slices.DeleteFunc(rows, func(r terrarium.Row) bool { return r.Field == field })
				}
			}, fault.BrokenBoundary, field},
			lie{"another value for " + field, func(l *liar) {
				l.rows = change(field, func(r *terrarium.Row) { r.Applied = "something else" })
			}, fault.BrokenBoundary, field + ` as "something else"`},
		)
	}
	for _, limit := range []string{"CPUs", "Memory", "Disk", "Output", "Pids", "Wall", "Idle"} {
		lies = append(lies, lie{"another limit taken for " + limit, func(l *liar) {
			l.rows = change(limit, func(r *terrarium.Row) { r.Asked, r.Applied = "7", "7" })
		}, fault.BrokenBoundary, "took " + limit})
	}
	for _, lie := range lies {
		t.Run(strings.ReplaceAll(lie.name, " ", "-"), func(t *testing.T) {
			l := honest()
			lie.tell(l)
			opened, err := terrarium.Validated(l).Open(t.Context(), askedSpec())
			if err == nil {
				t.Fatalf("the lie got a Terrarium (%v)", opened.Close(t.Context()))
			}
			if !fault.Is(err, lie.kind) || !strings.Contains(err.Error(), lie.names) {
				t.Errorf("refused as %s: %v; want %s that names %q", fault.KindOf(err), err, lie.kind, lie.names)
			}
			if l.opened != 1 || l.closed != 1 {
				t.Errorf("opened %d times and closed %d times", l.opened, l.closed)
			}
		})
	}
}

// The control: whoever says that all was done gets through.
func TestValidatedLetsTheHonestThrough(t *testing.T) {
	for _, spec := range []terrarium.Spec{askedSpec(), {
		Run: "r-1", Rootfs: terrarium.Rootfs{Host: &terrarium.HostView{}},
		Workspace: terrarium.Workspace{Image: "/store/base.erofs", Dir: "/runs/r-1"},
	}} {
		l := honest()
		opened, err := terrarium.Validated(l).Open(t.Context(), spec)
		if err != nil {
			t.Fatal(err)
		}
		if err := opened.Close(t.Context()); err != nil || l.closed != 1 {
			t.Errorf("closed %d times (%v)", l.closed, err)
		}
	}
}

// TestOnlyTheHostAdmitsToNothing: that nothing was done about a field may be said by a
// wall that is none, of what it never said it would do, and of nothing that was asked for.
func TestOnlyTheHostAdmitsToNothing(t *testing.T) {
	wallLess := func() *liar {
		l := honest()
		l.runtime, l.seals = terrarium.RuntimeHost, nil
		for _, field := range []string{"Network", "Disk"} {
			l.fields[field] = terrarium.NotKept
		}
		return l
	}
	differs := func(fields ...string) func([]terrarium.Row) []terrarium.Row {
		return func(rows []terrarium.Row) []terrarium.Row {
			for _, field := range fields {
				rows = change(field, func(r *terrarium.Row) { r.Applied, r.Enforced = "the host's", terrarium.NotKept })(rows)
			}
			return rows
		}
	}
	spec := askedSpec()
	spec.Disk = terrarium.Limit[int64]{}
	l := wallLess()
	l.rows = differs("Network", "Disk")
	opened, err := terrarium.Validated(l).Open(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	if err := opened.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	for name, tell := range map[string]func(*liar){
		"a container":                    func(l *liar) { l.runtime = "container" },
		"a machine":                      func(l *liar) { l.runtime = "microvm" },
		"no runtime":                     func(l *liar) { l.runtime = "" },
		"with a seal":                    func(l *liar) { l.seals = []string{probe.RootReadonly} },
		"of what it declares":            func(l *liar) { l.fields["Network"] = terrarium.ByHost },
		"as if it was enforced":          func(l *liar) { l.rows = change("Network", func(r *terrarium.Row) { r.Applied = "the host's" }) },
		"of what another field declares": func(l *liar) { l.rows = differs("Network", "Env") },
	} {
		l := wallLess()
		l.rows = differs("Network")
		tell(l)
		opened, err := terrarium.Validated(l).Open(t.Context(), spec)
		if err == nil {
			t.Errorf("%s: got a Terrarium (%v)", name, opened.Close(t.Context()))
			continue
		}
		if !fault.Is(err, fault.BrokenBoundary) || !strings.Contains(err.Error(), "the host's") || l.closed != 1 {
			t.Errorf("%s: closed %d times, %v", name, l.closed, err)
		}
	}
}

// Whoever asks for a root that can be written gets one: that seal is off, and no other.
func TestWritableRootIsNoLeak(t *testing.T) {
	for leak, opens := range map[string]bool{"W01": true, "N07": false} {
		l := honest()
		l.answer = func(id string) string {
			return answer(id, map[bool]probe.Status{true: probe.Leak, false: probe.Sealed}[id == leak])
		}
		spec := askedSpec()
		spec.WritableRoot = true
		opened, err := terrarium.Validated(l).Open(t.Context(), spec)
		if (err == nil) != opens {
			t.Errorf("with a leak at %s: %v", leak, err)
		}
		if err == nil {
			if err := opened.Close(t.Context()); err != nil {
				t.Error(err)
			}
		}
	}
}

// A provider never sees what it does not declare.
func TestUndeclaredFieldsAreRefused(t *testing.T) {
	for _, field := range terrarium.Fields() {
		if field == "Network" {
			continue // has no value but the zero one
		}
		for _, by := range []terrarium.Enforcement{"", terrarium.NotKept} {
			l := honest()
			spec := askedSpec()
			spec.WritableRoot = true
			if strings.HasPrefix(field, "Rootfs.Image.") {
				spec.Rootfs.Host, spec.Rootfs.Image = nil, &terrarium.Image{Path: "/store/image.erofs", Digest: "sha256:0"}
			}
			if delete(l.fields, field); by != "" {
				l.fields[field] = by
			}
			opened, err := terrarium.Validated(l).Open(t.Context(), spec)
			if err == nil {
				t.Errorf("%s is kept by %q, and was let through (%v)", field, by, opened.Close(t.Context()))
				continue
			}
			if !fault.Is(err, fault.Unavailable) || !strings.Contains(err.Error(), field) || l.opened != 0 {
				t.Errorf("%s is kept by %q: opened %d times, %v", field, by, l.opened, err)
			}
		}
	}
}

// What no boundary can be made from is refused before any provider sees it.
func TestImpossibleSpecs(t *testing.T) {
	for name, spoil := range map[string]func(*terrarium.Spec){
		"id of its run": func(s *terrarium.Spec) { s.Run = "" },
		"root file":     func(s *terrarium.Spec) { s.Rootfs.Host = nil },
		"root file system": func(s *terrarium.Spec) {
			s.Rootfs.Image = &terrarium.Image{Path: "/store/image.erofs", Digest: "sha256:0"}
		},
		"its digest": func(s *terrarium.Spec) {
			s.Rootfs = terrarium.Rootfs{Image: &terrarium.Image{Path: "/store/image.erofs"}}
		},
		"workspace image": func(s *terrarium.Spec) { s.Workspace.Image = "" },
		"directory":       func(s *terrarium.Spec) { s.Workspace.Dir = "" },
		"no network":      func(s *terrarium.Spec) { s.Network = 1 },
		"uid 0 or gid":    func(s *terrarium.Spec) { s.User = terrarium.User{UID: 0, GID: 7} },
		"or gid 0":        func(s *terrarium.Spec) { s.User = terrarium.User{UID: 7, GID: 0} },
		"NAME=value":      func(s *terrarium.Spec) { s.Env = []string{"PATH"} },
		`"=x"`:            func(s *terrarium.Spec) { s.Env = []string{"=x"} },
		`"A=b\x00c"`:      func(s *terrarium.Spec) { s.Env = []string{"A=b\x00c"} },
		"cpu limit":       func(s *terrarium.Spec) { s.CPUs.Value = math.NaN() },
		"the cpu":         func(s *terrarium.Spec) { s.CPUs.Value = -1 },
		"memory limit":    func(s *terrarium.Spec) { s.Memory.Value = -1 },
		"disk limit":      func(s *terrarium.Spec) { s.Disk.Value = -1 },
		"output limit":    func(s *terrarium.Spec) { s.Output.Value = -1 },
		"pids limit":      func(s *terrarium.Spec) { s.Pids.Value = -1 },
		"wall limit":      func(s *terrarium.Spec) { s.Wall.Value = -1 },
		"idle limit":      func(s *terrarium.Spec) { s.Idle.Value = -1 },
		`"a b=3128"`:      func(s *terrarium.Spec) { s.Listeners[0].Name = "a b" },
		`"proxy=0"`:       func(s *terrarium.Spec) { s.Listeners[0].Port = 0 },
		"below /opt":      func(s *terrarium.Spec) { s.Rootfs.Programs[0].Target = "/usr/bin/sprout" },
		"tendril/../":     func(s *terrarium.Spec) { s.Rootfs.Programs[0].Target = "/opt/tendril/../x" },
		"somebody who":    func(s *terrarium.Spec) { s.Listeners[0].Serve = nil },
		"of its own":      func(s *terrarium.Spec) { s.Listeners = append(s.Listeners, s.Listeners[0]) },
	} {
		l := honest()
		spec := askedSpec()
		spoil(&spec)
		_, err := terrarium.Validated(l).Open(t.Context(), spec)
		if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), name) || l.opened != 0 {
			t.Errorf("%s: opened %d times, %v", name, l.opened, err)
		}
	}
}

// A caller that gives up during the self-test is told so, and not of a broken boundary.
func TestGivingUpDuringTheSelfTest(t *testing.T) {
	l := honest()
	ctx, cancel := context.WithCancel(t.Context())
	l.answer = func(id string) string {
		cancel()
		<-ctx.Done()
		return ""
	}
	_, err := terrarium.Validated(l).Open(ctx, askedSpec())
	if !errors.Is(err, context.Canceled) || fault.Is(err, fault.BrokenBoundary) || l.closed != 1 {
		t.Errorf("closed %d times, %v", l.closed, err)
	}
}
