package acceptance_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"tendril/capability"
	"tendril/fault"
	"tendril/ledger"
	"tendril/pollen"
	"tendril/run"
)

// caller is somebody who may not, and why.
type caller struct {
	name  string
	token string // what is presented
	who   string // what a denial calls them, and the ledger's actor unless that is nobody
	actor string
	uid   int

	// rule is words of the rule that denies them a capability.
	rule func(capability.Definition) string

	// applies says whether the reason to deny exists for a capability at all.
	applies func(capability.Definition) bool
}

func everything(capability.Definition) bool { return true }

// hasSubject: only a request that is about a Substrate can be about another's.
func hasSubject(d capability.Definition) bool { return aboutSubstrate(d) || aboutRun(d) }

// aboutSubstrate: where a question of control names one, in a string, it is about another's
// authority.
func aboutSubstrate(d capability.Definition) bool {
	field, there := d.Input.FieldByName("Substrate")
	return there && field.Type.Kind() != reflect.String
}

func aboutRun(d capability.Definition) bool {
	_, run := d.Input.FieldByName("Run")
	return run
}

// always is the rule of a caller who is nobody, whatever he asks for.
func always(rule string) func(capability.Definition) string {
	return func(capability.Definition) string { return rule }
}

const (
	notCovered = "what no single grant covers is denied"
	notSeen    = "a Pollen sees its own runs"
)

// uncovered is the rule of a Pollen whose grants do not have what it asks for; aboutARun is
// that for a run.
func uncovered(aboutARun string) func(capability.Definition) string {
	return func(c capability.Definition) string {
		switch {
		case c.Branch == capability.Control:
			return "the control Branch cannot be granted"
		case aboutRun(c):
			return aboutARun
		}
		return notCovered
	}
}

// denied is a site at which nobody of its callers may do anything.
type denied struct {
	*garden
	callers []caller
	run     run.ID // on the Substrate handbook, by the Pollen "owner"
	tokens  string // directory of the callers' token files
}

func newDenied(t *testing.T) *denied {
	g := newGarden(t)
	d := &denied{garden: g, tokens: filepath.Join(filepath.Dir(g.home), "tokens")}
	if err := os.Mkdir(d.tokens, 0o700); err != nil {
		t.Fatal(err)
	}
	g.makeRepository(filepath.Join(filepath.Dir(g.home), "other"))
	g.succeed("substrate", "add", "handbook", "--path", g.repo)
	g.succeed("substrate", "add", "other", "--path", filepath.Join(filepath.Dir(g.home), "other"))

	uid := os.Getuid()
	d.add("empty token", "", "", always("exactly as it was issued"), everything)
	d.add("garbage", "tendril_pollen_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", "", always("exactly as it was issued"), everything)
	d.add("a token of another site", pollen.NewToken().Reveal(), "", always("good where it was issued"), everything)
	d.add("revoked", d.issue("revoked", nil, time.Now(), time.Hour), "revoked", always("a revoked Pollen"), everything)
	g.succeed("pollen", "revoke", "revoked")
	d.add("rotated", d.issue("rotated", nil, time.Now(), time.Hour), "", always("until it is rotated"), everything)
	g.succeed("pollen", "rotate", "rotated")
	d.add("expired", d.issue("expired", nil, time.Now().Add(-2*time.Hour), time.Hour), "expired", always("an expired Pollen"), everything)
	other := uid + 1
	d.add("another account's", d.issue("bound", &other, time.Now(), time.Hour), "bound", always("good for its uid alone"), everything)
	d.add("no grants", d.issue("zero", nil, time.Now(), time.Hour), "zero", uncovered(notCovered), everything)
	// Each has one class, and is asked for all of the others.
	for _, class := range []string{"run.get", "run.list"} {
		name := strings.ReplaceAll("only-"+class, ".", "-")
		d.add("class not granted", d.issue(name, nil, time.Now(), time.Hour), name, uncovered(notCovered), func(d capability.Definition) bool { return d.Name != class })
		g.succeed("grant", "add", "--pollen", name, "--substrate", "handbook", "--class", class)
	}
	d.add("Substrate not granted", d.issue("elsewhere", nil, time.Now(), time.Hour), "elsewhere", uncovered(notSeen), func(d capability.Definition) bool {
		return hasSubject(d) || d.Branch == capability.Control
	})
	d.add("another Pollen's run", d.issue("neighbour", nil, time.Now(), time.Hour), "neighbour", uncovered(notSeen), func(d capability.Definition) bool {
		return aboutRun(d) || d.Branch == capability.Control
	})
	owner := d.issue("owner", nil, time.Now(), time.Hour)
	for name, substrate := range map[string]string{"elsewhere": "other", "neighbour": "handbook", "owner": "handbook", "revoked": "handbook", "expired": "handbook", "bound": "handbook"} {
		args := []string{"grant", "add", "--pollen", name, "--substrate", substrate}
		for _, c := range capability.All() {
			if c.Branch != capability.Control {
				args = append(args, "--class", c.Name)
			}
		}
		g.succeed(args...)
	}
	grown := g.succeed("--token-file", d.tokenFile("owner", owner), "--json", "grow", "--substrate", "handbook", "--", "true")
	var r run.Run
	if err := json.Unmarshal([]byte(grown.stdout), &r); err != nil {
		t.Fatal(err)
	}
	d.run = r.ID
	return d
}

func (d *denied) add(name, token, actor string, rule func(capability.Definition) string, applies func(capability.Definition) bool) {
	who := actor
	if actor == "" {
		who = fmt.Sprintf("nobody (uid %d)", os.Getuid())
	}
	d.callers = append(d.callers, caller{name, token, who, actor, os.Getuid(), rule, applies})
}

// issue puts a Pollen into the site's database, also one whose time is over.
func (d *denied) issue(name string, uid *int, at time.Time, ttl time.Duration) string {
	d.t.Helper()
	record, token, err := pollen.Issue(pollen.Name(name), uid, at, ttl)
	if err != nil {
		d.t.Fatal(err)
	}
	if _, err := d.store.IssuePollen(context.Background(), record); err != nil {
		d.t.Fatal(err)
	}
	return token.Reveal()
}

func (d *denied) tokenFile(name, token string) string {
	d.t.Helper()
	path := filepath.Join(d.tokens, strings.ReplaceAll(name, " ", "-"))
	if err := os.WriteFile(path, []byte(token+"\n"), 0o600); err != nil {
		d.t.Fatal(err)
	}
	return path
}

// input is a request of that capability about the run or the Substrate.
func (d *denied) input(c capability.Definition) string {
	d.t.Helper()
	in := reflect.New(c.Input).Elem()
	for name, value := range map[string]any{"Run": d.run, "Substrate": run.Substrate{Name: "handbook"}} {
		field := in.FieldByName(name)
		switch v := reflect.ValueOf(value); {
		case !field.IsValid():
		case field.Type() == v.Type():
			field.Set(v)
		case field.Kind() == reflect.Pointer && field.Type().Elem() == v.Type():
			field.Set(reflect.New(v.Type()))
			field.Elem().Set(v)
		}
	}
	data, err := json.Marshal(in.Interface())
	if err != nil {
		d.t.Fatal(err)
	}
	return string(data)
}

// TestNobodyElseMay asks for every capability in every way in which it must be refused.
// What the registry holds is covered without a word here.
func TestNobodyElseMay(t *testing.T) {
	d := newDenied(t)
	t.Run("command line", func(t *testing.T) {
		d.each(t, func(t *testing.T, c capability.Definition, who caller) failure {
			return d.byCommand(t, c, who)
		})
	})
	socket := d.serve(t, "0600")
	t.Run("command line over the socket", func(t *testing.T) {
		d.each(t, func(t *testing.T, c capability.Definition, who caller) failure {
			return d.byCommand(t, c, who, "--socket", socket)
		})
	})
	t.Run("socket", func(t *testing.T) {
		d.each(t, func(t *testing.T, c capability.Definition, who caller) failure {
			return bySocket(t, socket, c.Name, &who.token, d.input(c))
		})
	})
}

// failure is what a refused caller is told.
type failure struct {
	Kind   fault.Kind `json:"kind"`
	Detail string     `json:"detail"`
	Rule   string     `json:"rule"`
}

func (d *denied) each(t *testing.T, ask func(*testing.T, capability.Definition, caller) failure) {
	for _, who := range d.callers {
		t.Run(who.name, func(t *testing.T) {
			asked := 0
			for _, c := range capability.All() {
				if who.applies(c) {
					d.mustRefuse(t, c, who, ask)
					asked++
				}
			}
			if asked < 8 {
				t.Errorf("only %d capabilities were asked for", asked)
			}
		})
	}
}

// mustRefuse: the denial says who, what, on what and by which rule, and is the one new
// row of the ledger.
func (d *denied) mustRefuse(t *testing.T, c capability.Definition, who caller, ask func(*testing.T, capability.Definition, caller) failure) {
	t.Helper()
	before, err := d.store.LedgerSize(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	told := ask(t, c, who)
	subject, recorded := "this site", ledger.Entry{Proof: ledger.ByNothing}
	if who.actor != "" {
		recorded.Proof = ledger.ByToken
	}
	switch {
	case aboutRun(c):
		subject, recorded.Run = "run "+string(d.run), string(d.run)
	case aboutSubstrate(c):
		subject, recorded.Subject = "Substrate handbook", "handbook"
	}
	if told.Kind != fault.Denied || !strings.Contains(told.Rule, who.rule(c)) || !strings.Contains(told.Detail, who.who+" may not "+c.Name+" on ") ||
		!strings.Contains(told.Detail, " on "+subject) {
		t.Errorf("%s: %+v", c.Name, told)
	}
	lines, err := d.store.LedgerLines(t.Context(), before, 10)
	if err != nil || len(lines) != 1 {
		t.Fatalf("%s: %d new rows, %v", c.Name, len(lines), err)
	}
	row, err := ledger.ParseRow(lines[0])
	if err != nil {
		t.Fatal(err)
	}
	if row.Kind != ledger.Decision || row.Decision != ledger.Deny || row.Capability != c.Name || row.Actor != who.actor ||
		row.Fault != string(fault.Denied) || row.Rule != told.Rule || row.Subject != recorded.Subject || row.Run != recorded.Run ||
		row.Proof != recorded.Proof || row.UID == nil || *row.UID != who.uid {
		t.Errorf("%s: the ledger says %s", c.Name, lines[0])
	}
}

func (d *denied) byCommand(t *testing.T, c capability.Definition, who caller, flags ...string) failure {
	t.Helper()
	in := filepath.Join(d.tokens, "input.json")
	if err := os.WriteFile(in, []byte(d.input(c)), 0o600); err != nil {
		t.Fatal(err)
	}
	args := slices.Concat([]string{"--token-file", d.tokenFile(who.name, who.token)}, flags, []string{"call", c.Name, in})
	said := d.in(t).tendril(args...)
	return refused(t, c.Name, said)
}

func refused(t *testing.T, name string, said answer) failure {
	t.Helper()
	if said.status != run.ExitRefused {
		t.Errorf("%s: exit status %d: %s%s", name, said.status, said.stdout, said.stderr)
	}
	var answered struct {
		Error failure `json:"error"`
	}
	if err := json.Unmarshal([]byte(said.stdout), &answered); err != nil {
		t.Errorf("%s: %q: %v", name, said.stdout, err)
	}
	return answered.Error
}

// bySocket speaks the wire itself.
func bySocket(t *testing.T, socket, name string, token *string, input string) failure {
	t.Helper()
	conn, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	line, err := json.Marshal(map[string]any{"version": 1, "capability": name, "token": token, "input": json.RawMessage(input)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Write(append(line, '\n')); err != nil {
		t.Fatal(err)
	}
	answered, err := bufio.NewReader(conn).ReadBytes('\n')
	if err != nil {
		t.Fatal(err)
	}
	var reply struct {
		Row   *int64   `json:"row"`
		Error *failure `json:"error"`
	}
	if err := json.Unmarshal(answered, &reply); err != nil || reply.Error == nil || reply.Row == nil {
		t.Fatalf("%s: %s: %v", name, answered, err)
	}
	return *reply.Error
}

// serve starts a tendril that serves the garden's site, and returns its socket.
func (g *garden) serve(t *testing.T, mode string) string {
	t.Helper()
	socket := filepath.Join(filepath.Dir(g.home), "t.sock")
	g.serveOn(t, socket, mode)
	return socket
}

func (g *garden) serveOn(t *testing.T, socket, mode string) *growing {
	t.Helper()
	server := g.start("--socket", socket, "serve", "--socket-mode", mode)
	g.eventually("a tendril serves", func() bool {
		if server.hasEnded() {
			t.Fatalf("serve has ended: %+v", server.wait())
		}
		conn, err := net.Dial("unix", socket)
		if err == nil {
			conn.Close()
		}
		return err == nil
	})
	t.Cleanup(func() {
		server.cmd.Process.Signal(syscall.SIGTERM)
		if said := server.wait(); said.status != 0 && said.status != -1 {
			t.Errorf("serve: status %d: %s", said.status, said.stderr)
		}
	})
	return server
}

// Another account is nobody, whatever it says about itself.
func TestAnotherAccountIsNobody(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can be another account")
	}
	d := newDenied(t)
	socket := d.serve(t, "0666")
	for dir := filepath.Dir(socket); dir != "/"; dir = filepath.Dir(dir) { // to reach the socket is allowed
		if info, err := os.Stat(dir); err == nil && info.Mode().Perm()&1 == 0 {
			if err := os.Chmod(dir, info.Mode().Perm()|0o011); err != nil {
				t.Fatal(err)
			}
		}
	}
	// Where the account can run it.
	program := filepath.Join(filepath.Dir(socket), "tendril")
	copyFile(t, d.binary, program)
	home := filepath.Join(filepath.Dir(socket), "stranger")
	if err := os.Mkdir(home, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(home, ordinaryUID, ordinaryUID); err != nil {
		t.Fatal(err)
	}
	stranger := caller{"another account", "", fmt.Sprintf("nobody (uid %d)", ordinaryUID), "", ordinaryUID, always("only the owner of the control plane"), everything}
	for _, c := range capability.All() {
		d.mustRefuse(t, c, stranger, func(t *testing.T, c capability.Definition, _ caller) failure {
			cmd := exec.Command(program, "--socket", socket, "call", c.Name)
			cmd.Stdin = strings.NewReader(d.input(c))
			cmd.Dir, cmd.Env = home, []string{"PATH=/usr/bin:/bin", "HOME=" + home, "USER=botanist", "TENDRIL_POLLEN=botanist", "SUDO_USER=root"}
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: ordinaryUID, Gid: ordinaryUID}}
			out, _ := cmd.Output()
			return refused(t, c.Name, answer{string(out), "", cmd.ProcessState.ExitCode()})
		})
	}
}

// TestEveryCapabilityHasAVerb: the command line has a verb for each capability, and its
// page shows it.
func TestEveryCapabilityHasAVerb(t *testing.T) {
	g := newGarden(t)
	page, err := os.ReadFile("../docs/commands.md")
	if os.IsNotExist(err) {
		t.Skip("this is not a checkout")
	}
	if err != nil {
		t.Fatal(err)
	}
	short := map[string]string{"sprout.grow": "grow", "stoma.pass": "pass"}
	for _, c := range capability.All() {
		noun, verb, _ := strings.Cut(c.Name, ".")
		if said := g.tendril(noun, verb, "--help"); said.status != 0 {
			t.Errorf("tendril %s %s: %s%s", noun, verb, said.stdout, said.stderr)
		}
		heading := noun + " " + verb
		if short[c.Name] != "" {
			heading = short[c.Name]
		}
		if !strings.Contains(string(page), "\n## tendril "+heading+"\n") {
			t.Errorf("docs/commands.md does not show tendril %s: make generate", heading)
		}
	}
}
