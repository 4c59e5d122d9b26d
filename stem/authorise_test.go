//go:build linux

package stem

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tendril/capability"
	"tendril/egress"
	"tendril/egress/proxy"
	"tendril/fault"
	"tendril/ledger"
	"tendril/run"
	"tendril/terrarium"
)

// granted is a Stem with one grant, and a caller who presents its Pollen.
func granted(t testing.TB, grants string) (*Stem, Presented) {
	t.Helper()
	s := bare(t)
	writeControl(t, s, "grants.yaml", grants)
	issued, err := s.Invoke(t.Context(), ByProcess(), "pollen.issue", capability.PollenIssueInput{Name: "ci-docs"})
	if err != nil {
		t.Fatal(err)
	}
	return s, ByPeer(12345).WithToken(issued.Output.(capability.IssuedPollen).Token)
}

func writeControl(t testing.TB, s *Stem, name, text string) {
	t.Helper()
	if err := os.MkdirAll(s.config.Site.Config, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(s.config.Site.Config, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

const oneGrant = `version: 1
grants:
  - pollen: ci-docs
    substrates: [handbook]
    classes: [run.list, run.get, run.watch, sprout.grow]
    runs: substrate
`

// recorded puts a run into the database, as another process might have begun it.
func recorded(t *testing.T, s *Stem, substrate run.Substrate, by string) run.ID {
	t.Helper()
	id := run.NewID()
	if err := s.state.CreateRun(t.Context(), run.Run{ID: id, State: run.Queued, Pollen: by, Substrate: substrate}); err != nil {
		t.Fatal(err)
	}
	return id
}

// A list shows what its grant shows, and names of repositories stay the Botanist's.
func TestPollenSeesWhatItsGrantShows(t *testing.T) {
	s, who := granted(t, oneGrant)
	handbook := run.Substrate{Name: "handbook"}
	seen := recorded(t, s, handbook, "another")
	elsewhere := recorded(t, s, run.Substrate{Name: "other"}, "ci-docs")
	byPath := recorded(t, s, run.Substrate{Path: "/srv/handbook"}, "botanist")
	answer, err := s.Invoke(t.Context(), who, "run.list", capability.ListInput{})
	if err != nil {
		t.Fatal(err)
	}
	if list := answer.Output.([]run.Run); len(list) != 1 || list[0].ID != seen {
		t.Errorf("listed %v", list)
	}
	if _, err := s.Invoke(t.Context(), who, "run.get", capability.RunInput{Run: seen}); err != nil {
		t.Error(err)
	}
	// What may not be seen and what does not exist are refused in the same words.
	said := map[string]bool{}
	for _, id := range []run.ID{byPath, elsewhere, run.NewID()} {
		_, err := s.Invoke(t.Context(), who, "run.get", capability.RunInput{Run: id})
		if !fault.Is(err, fault.Denied) {
			t.Errorf("%s: %v", id, err)
			continue
		}
		said[strings.ReplaceAll(err.Error(), string(id), "")] = true
	}
	if len(said) != 1 {
		t.Errorf("refused in different words: %v", said)
	}
}

// An edit takes effect on the next decision, a broken one does not.
func TestGrantsAreReadAgain(t *testing.T) {
	s, who := granted(t, oneGrant)
	list := func() error {
		_, err := s.Invoke(t.Context(), who, "run.list", capability.ListInput{})
		return err
	}
	if err := list(); err != nil {
		t.Fatal(err)
	}
	var said []string
	s.config.Notice = func(text string) { said = append(said, text) }
	writeControl(t, s, "grants.yaml", oneGrant+"    expire: 2020-01-01\n")
	if err := list(); err != nil {
		t.Errorf("a broken edit took away what held before: %v", err)
	}
	if len(said) != 1 || !strings.Contains(said[0], `grants.yaml:7: unknown key "expire" (did you mean "expires"?)`) {
		t.Errorf("said %q", said)
	}
	writeControl(t, s, "grants.yaml", oneGrant+"    expires: 2020-01-01\n")
	if err := list(); !fault.Is(err, fault.Denied) || !strings.Contains(err.Error(), "ended") {
		t.Errorf("after the grant's end: %v", err)
	}
	if err := os.Remove(filepath.Join(s.config.Site.Config, "grants.yaml")); err != nil {
		t.Fatal(err)
	}
	if err := list(); !fault.Is(err, fault.Denied) {
		t.Errorf("without a grants file: %v", err)
	}
}

// A Stem that never understood its grants grants nothing, and its Botanist can mend them.
func TestBrokenGrantsGrantNothing(t *testing.T) {
	s, who := granted(t, "version: 1\ngrant: []\n")
	if _, err := s.Invoke(t.Context(), who, "run.list", capability.ListInput{}); !fault.Is(err, fault.Denied) || strings.Contains(err.Error(), s.config.Site.Config) {
		t.Errorf("a Pollen: %v", err)
	}
	if _, err := s.Invoke(t.Context(), ByProcess(), "run.list", capability.ListInput{}); err != nil {
		t.Errorf("the Botanist: %v", err)
	}
	if _, err := s.Invoke(t.Context(), ByProcess(), "grant.check", capability.GrantCheckInput{}); !fault.Is(err, fault.Invalid) {
		t.Errorf("checked: %v", err)
	}
}

// permitEnds are the ways in which what permits a call ends.
var permitEnds = map[string]func(*testing.T, *Stem){
	"revoked": func(t *testing.T, s *Stem) {
		if _, err := s.Invoke(t.Context(), ByProcess(), "pollen.revoke", capability.PollenInput{Name: "ci-docs"}); err != nil {
			t.Error(err)
		}
	},
	"expired": func(t *testing.T, s *Stem) {
		// A rotation keeps the lifetime, so that one of long ago is over by now.
		if _, _, err := s.state.RotatePollen(t.Context(), "ci-docs", time.Now().AddDate(-10, 0, 0)); err != nil {
			t.Error(err)
		}
	},
	"the grant is gone": func(t *testing.T, s *Stem) { writeControl(t, s, "grants.yaml", "version: 1\ngrants: []\n") },
}

// A watch ends with what permitted it.
func TestWatchEndsWithItsPermit(t *testing.T) {
	for name, end := range permitEnds {
		t.Run(name, func(t *testing.T) {
			s, who := granted(t, oneGrant)
			id := recorded(t, s, run.Substrate{Name: "handbook"}, "ci-docs")
			began := make(chan struct{}, 1)
			ctx := capability.WithEvents(t.Context(), func(run.Event) { began <- struct{}{} })
			ended := make(chan error, 1)
			go func() {
				_, err := s.Invoke(ctx, who, "run.watch", capability.WatchInput{Run: id})
				ended <- err
			}()
			<-began
			end(t, s)
			if err := <-ended; !fault.Is(err, fault.Denied) {
				t.Errorf("it ended with %v", err)
			}
		})
	}
}

// A fetch ends with what permitted it, however long its server takes.
func TestFetchEndsWithItsPermit(t *testing.T) {
	stalls, arrived := stalling(t)
	fetch := func(t *testing.T, path string, end func(*testing.T, *Stem)) {
		s, who := granted(t, fmt.Sprintf(`version: 1
grants:
  - pollen: ci-docs
    substrates: [handbook]
    classes: [egress.fetch]
    egress: [{scheme: http, host: 127.0.0.1, port: %s, networks: [127.0.0.0/8]}]
`, stalls))
		s.config.Dialer = &egress.Dialer{}
		ended := make(chan error, 1)
		go func() {
			_, err := s.Invoke(t.Context(), who, "egress.fetch",
				capability.FetchInput{Substrate: run.Substrate{Name: "handbook"}, URL: "http://127.0.0.1:" + stalls + path})
			ended <- err
		}()
		select {
		case <-arrived:
		case err := <-ended:
			t.Fatal(err)
		}
		end(t, s)
		if err := <-ended; !fault.Is(err, fault.Denied) {
			t.Errorf("it ended with %v", err)
		}
		for _, row := range rowsOf(t, s, ledger.Outcome) {
			if row.State == string(proxy.Leak) {
				t.Errorf("it is recorded as a leak: %+v", row)
			}
		}
	}
	for name, end := range permitEnds {
		t.Run(name, func(t *testing.T) { fetch(t, "/", end) })
	}
	t.Run("revoked before any answer", func(t *testing.T) { fetch(t, "/silent", permitEnds["revoked"]) })
}

// stalling is the port of a server that begins an answer, but to /silent, and never ends it.
// It says when it was asked.
func stalling(t *testing.T) (port string, arrived chan struct{}) {
	t.Helper()
	arrived = make(chan struct{}, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/silent" {
			w.Header().Set("Content-Length", "10")
			_, _ = w.Write([]byte("begun"))
			_ = http.NewResponseController(w).Flush()
		}
		arrived <- struct{}{}
		<-r.Context().Done()
	}))
	t.Cleanup(server.Close)
	_, port, err := net.SplitHostPort(server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port, arrived
}

// A rotation does not end what runs.
func TestRotationEndsNothing(t *testing.T) {
	s, who := granted(t, oneGrant)
	id := recorded(t, s, run.Substrate{Name: "handbook"}, "ci-docs")
	if _, err := s.Invoke(t.Context(), ByProcess(), "pollen.rotate", capability.PollenInput{Name: "ci-docs"}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Invoke(t.Context(), who, "run.get", capability.RunInput{Run: id}); !fault.Is(err, fault.Denied) {
		t.Errorf("the token before: %v", err)
	}
	record, err := s.state.Pollen(t.Context(), "ci-docs")
	if err != nil {
		t.Fatal(err)
	}
	c := &call{name: "run.watch", input: capability.WatchInput{Run: id}, actor: Actor{name: "ci-docs", pollen: &record, uid: 12345}}
	definition, err := capability.Lookup("run.watch")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.stillPermitted(t.Context(), c, definition); err != nil {
		t.Error(err)
	}
}

// A grant that accepts the host gives a Pollen nothing that the policy denies, and an image
// is used only where the grant names exactly it.
func TestPollenOverridesNothing(t *testing.T) {
	s, who := granted(t, oneGrant+"    providers: [host, runsc]\n    images: [\"oci:/images/tools:1\"]\n")
	s.providers = append(s.providers, terrarium.Validated(&facade{name: "host", runtime: "host"}))
	for says, change := range map[string]func(*capability.Work){
		"overridden by the Botanist alone": func(w *capability.Work) { w.Provider, w.Override = "host", "host" },
		"nothing isolates the work":        func(w *capability.Work) { w.Provider = "host" },
		"does not name the image":          func(w *capability.Work) { w.Image = "oci:/images/tools:2" },
	} {
		work := capability.Work{Substrate: run.Substrate{Name: "handbook"}, Argv: []string{"true"}}
		change(&work)
		_, err := s.Invoke(t.Context(), who, "sprout.grow", capability.GrowInput{Work: work})
		var f *fault.Error
		if !errors.As(err, &f) || f.Kind != fault.Denied || !strings.Contains(err.Error()+f.Rule, says) {
			t.Errorf("%v; want a denial that says %q", err, says)
		}
	}
}
