package acceptance_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
	"tendril/run"
)

// A token can be given where a name belongs. It comes back in no answer and stays in
// nothing that is kept.
func TestATokenInTheWrongPlaceStaysNowhere(t *testing.T) {
	g := newGarden(t)
	token := g.pollenFor("ci-docs", "run.list", "sprout.grow")
	file := g.tokenIn("ci-docs", token)
	secret := strings.TrimPrefix(token, "tendril_pollen_")
	input := filepath.Join(g.home, "input.json")
	if err := os.WriteFile(input, []byte(`{"run":"`+token+`"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	socket := g.serve(t, "0600")
	for _, where := range [][]string{nil, {"--socket", socket}} {
		for _, who := range [][]string{nil, {"--token-file", file}} {
			for _, line := range [][]string{
				{"grow", "-s", token, "--", "true"},
				{"grow", "-s", "./" + token, "--", "true"},
				{"grow", "-s", g.repo, "--base", token, "--", "true"},
				{"grow", "-s", g.repo, "--provider", token, "--", "true"},
				{"grow", "-s", "handbook", "--fetch", token, "--", "true"},
				{"substrate", "add", token},
				{"substrate", "add", "x", "--path", token},
				{"substrate", "remove", token},
				{"run", "get", token},
				{"run", "list", "--state", token},
				{"run", token},
				{token},
				{"call", token},
				{"call", "run.get", token},
				{"call", "run.get", input},
				{"pollen", "issue", token},
				{"pollen", "issue", "other", "--ttl", token},
				{"pollen", "revoke", token},
				{"grant", "add", "--pollen", token, "--substrate", "handbook", "--class", "run.get"},
				{"grant", "add", "--pollen", "ci-docs", "--substrate", token, "--class", "run.get"},
				{"grant", "add", "--pollen", "ci-docs", "--substrate", "handbook", "--class", token},
				{"grant", "explain", "--pollen", token, "--class", "run.get"},
				{"grant", "check", token},
				{"ledger", "verify", token},
				{"ledger", "verify", "--key", token},
				{"ledger", "verify", "--checkpoint", token},
				{"credential", "remove", token},
				{"egress", "explain", token},
				{"fruit", "accept", token},
				{"fruit", "diff", token, "--" + token},
			} {
				for _, form := range [][]string{nil, {"--json"}} {
					args := slices.Concat(where, who, form, line)
					said := g.tendril(args...)
					if said.status == 0 || strings.Contains(said.stdout+said.stderr, secret[:10]) {
						t.Errorf("%q: status %d\n%s%s", args, said.status, said.stdout, said.stderr)
					}
				}
			}
		}
	}
	for _, args := range [][]string{
		{"--token-file", token, "run", "list"}, {"--token-fd", token, "run", "list"}, {"--socket", "/" + token, "run", "list"}, {"serve", "--socket-mode", token},
	} {
		if said := g.tendril(args...); said.status == 0 || strings.Contains(said.stdout+said.stderr, secret[:10]) {
			t.Errorf("%q: status %d\n%s%s", args, said.status, said.stdout, said.stderr)
		}
	}
	if said := g.startAs(`TENDRIL_TOKEN_FILE=$1 exec "$0" run list`, token).wait(); said.status == 0 || strings.Contains(said.stderr, secret[:10]) {
		t.Errorf("in the variable: %+v", said)
	}
	if export := g.succeed("ledger", "export").stdout; !strings.Contains(export, "tendril_pollen_(redacted)") {
		t.Error("no row of the ledger says that there was one")
	}
	err := filepath.WalkDir(g.state, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		content, err := os.ReadFile(path)
		if bytes.Contains(content, []byte(secret[:10])) {
			t.Errorf("%s holds the token", path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// The first signal ends whoever waits for something that does not come.
func TestTheFirstSignalEndsAWait(t *testing.T) {
	g := newGarden(t)
	for name, script := range map[string]string{
		"a token":               `exec "$0" --token-fd 3 run list 3<"$1"`,
		"an input on stdin":     `exec "$0" call run.list <"$1"`,
		"an input from a FIFO":  `exec "$0" call run.list "$1"`,
		"an export on stdin":    `exec "$0" ledger verify - <"$1"`,
		"an export from a FIFO": `exec "$0" ledger verify "$1"`,
		"a checkpoint":          `exec "$0" ledger verify --checkpoint "$1"`,
		"a grants file":         `exec "$0" grant check "$1"`,
	} {
		t.Run(name, func(t *testing.T) {
			g := g.in(t)
			path := filepath.Join(t.TempDir(), "fifo")
			if err := unix.Mkfifo(path, 0o600); err != nil {
				t.Fatal(err)
			}
			fifo, err := os.OpenFile(path, os.O_RDWR, 0) // of both ends, so that it has no end
			if err != nil {
				t.Fatal(err)
			}
			defer fifo.Close()
			if _, err := fifo.WriteString("x"); err != nil {
				t.Fatal(err)
			}
			p := g.startAs(script, path)
			g.eventually("it is read", func() bool {
				left, err := unix.IoctlGetInt(int(fifo.Fd()), unix.TIOCINQ)
				return p.hasEnded() || err == nil && left == 0
			})
			p.cmd.Process.Signal(syscall.SIGTERM)
			if said := p.wait(); said.status != run.ExitRefused || !strings.Contains(said.stdout+said.stderr, "interrupted") {
				t.Errorf("%+v", said)
			}
		})
	}
	// A token's file is no pipe, which is said at once.
	fifo := filepath.Join(g.home, "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	if said := g.tendril("--token-file", fifo, "run", "list"); said.status != run.ExitRefused || !strings.Contains(said.stderr, "is not a regular file") {
		t.Errorf("%+v", said)
	}
}

// What became of a call is not known once whoever was asked is gone, or says nothing.
func TestAnOutcomeThatIsNotKnown(t *testing.T) {
	for how, end := range map[string]func(*growing, *growing){
		"the server is killed": func(server, _ *growing) { server.kill() },
		"the server is stopped and the caller interrupted": func(server, caller *growing) {
			server.cmd.Process.Signal(syscall.SIGSTOP)
			caller.cmd.Process.Signal(syscall.SIGTERM)
		},
	} {
		t.Run(how, func(t *testing.T) {
			g := newGarden(t)
			socket := filepath.Join(filepath.Dir(g.home), "t.sock")
			server := g.serveOn(t, socket, "0600")
			defer server.cmd.Process.Signal(syscall.SIGCONT)
			caller := g.start("--socket", socket, "grow", "--json", "--substrate", g.repo, "--", "sh", "-c", "echo ready; sleep 1000")
			g.awaitOutput(caller, nil, "ready")
			end(server, caller)
			said := caller.wait()
			var answer struct{ Error run.Error }
			if err := json.Unmarshal([]byte(said.stdout), &answer); err != nil || said.status != run.ExitInternal ||
				!strings.Contains(answer.Error.Detail, "what became of the call is not known") {
				t.Errorf("%+v (%v)", said, err)
			}
		})
	}
}

// What is asked in JSON is answered in JSON, also a call that is no call.
func TestCallFailsInJSON(t *testing.T) {
	g := newGarden(t)
	for _, args := range [][]string{
		{"call"}, {"call", "no.such"}, {"call", "run.get", "no-such-file"}, {"call", "run.get", "a", "b"}, {"call", "--no-such-flag"},
		{"call", "run.list", ""}, {"call", "run.list", "--", "true"}, {"--token-file", "no-such", "call", "run.list", "/dev/null"},
		{"--socket", "/no/such", "call", "run.list", "/dev/null"}, {"call", "run.get", "/dev/null"},
	} {
		said := g.tendril(args...)
		var answer struct{ Error *run.Error }
		if err := json.Unmarshal([]byte(said.stdout), &answer); err != nil || answer.Error == nil || said.stderr != "" || said.status != run.ExitRefused {
			t.Errorf("%q: %+v (%v)", args, said, err)
		}
	}
}

func TestServeTakesNoToken(t *testing.T) {
	g := newGarden(t)
	file := g.tokenIn("ci-docs", g.pollenFor("ci-docs", "run.list"))
	for _, p := range []*growing{
		g.start("--token-file", file, "serve"), g.start("--token-fd", "0", "serve"), g.startAs(`TENDRIL_TOKEN_FILE=$1 exec "$0" serve`, file),
	} {
		if said := p.wait(); said.status != run.ExitRefused || !strings.Contains(said.stderr, "takes no token") {
			t.Errorf("%+v", said)
		}
	}
}

func TestServeSaysWhereItGetsNoTokens(t *testing.T) {
	g := newGarden(t)
	mine := filepath.Join(g.home, "open", "mine")
	if err := errors.Join(os.MkdirAll(mine, 0o700), os.Chmod(filepath.Dir(mine), 0o777)); err != nil {
		t.Fatal(err)
	}
	for dir, want := range map[string]bool{mine: true, g.home: false} {
		socket := filepath.Join(dir, "s")
		p := g.start("serve", "--socket", socket)
		g.eventually("the socket is there", func() bool { return p.hasEnded() || exists(socket) })
		p.cmd.Process.Signal(syscall.SIGTERM)
		if said := p.wait(); said.status != 0 || strings.Contains(said.stderr, "no client sends a token to") != want {
			t.Errorf("in %s: %+v", dir, said)
		}
	}
}

func TestATokenInAWorkingTreeIsWarnedOf(t *testing.T) {
	g := newGarden(t)
	sub := filepath.Join(g.repo, "sub")
	if err := os.Mkdir(sub, 0o755); err != nil {
		t.Fatal(err)
	}
	linked := filepath.Join(g.home, "linked")
	if err := os.Symlink(sub, linked); err != nil {
		t.Fatal(err)
	}
	worktree := filepath.Join(g.home, "worktree")
	g.git("worktree", "add", "-q", worktree, "topic")
	for name, dir := range map[string]string{"top": g.repo, "below": sub, "linked": linked, "worktree": worktree} {
		if said := g.succeed("pollen", "issue", name, "--token-out", filepath.Join(dir, name+".token")); !strings.Contains(said.stderr, "Git working tree") {
			t.Errorf("%s: %s", name, said.stderr)
		}
	}
	if said := g.succeed("pollen", "issue", "elsewhere", "--token-out", filepath.Join(g.home, "token")); strings.Contains(said.stderr, "Git") {
		t.Error(said.stderr)
	}
}

// The ledger is verified in every order in which a person would do it.
func TestTheLedgerIsVerifiedInAnyOrder(t *testing.T) {
	g := newGarden(t)
	sh := func(script string) (string, error) {
		return g.tryShell("cd " + g.home + "; tendril() { '" + g.binary + "' \"$@\"; }; " + script)
	}
	for name, script := range map[string]string{
		"export, verify":                    `tendril ledger export >a && tendril ledger verify a`,
		"export into verify":                `tendril ledger export | tendril ledger verify -`,
		"checkpoint, export, verify":        `tendril ledger checkpoint >k && tendril ledger export >b && tendril ledger verify b --checkpoint k --key "$(tendril ledger key)"`,
		"export with a checkpoint":          `tendril ledger export --checkpoint-out k2 >c && tendril ledger verify c --checkpoint k2`,
		"export, later verify":              `tendril ledger export >d && tendril run list && tendril ledger key && tendril ledger verify d`,
		"checkpoint, verify the site's own": `tendril ledger checkpoint >k3 && tendril ledger verify --checkpoint k3`,
	} {
		if out, err := sh(script); err != nil {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
	for name, test := range map[string]struct{ script, want string }{
		"export, checkpoint, verify":     {`tendril ledger export >e; tendril ledger checkpoint >k4; tendril ledger verify e --checkpoint k4`, "either it was made before the checkpoint, or rows were cut"},
		"a changed row":                  {`tendril ledger export >f; sed -i s/run.list/run.lost/ f; tendril ledger verify f`, "the ledger does not hold"},
		"a changed row, kept":            {`tendril ledger export --checkpoint-out k5 >h; sed -i s/run.list/run.lost/ h; tendril ledger verify h --checkpoint k5`, "the ledger does not hold"},
		"a row that is half there":       {`tendril ledger export | head -c 700 >i; tendril ledger verify i`, "not whole"},
		"a key that is none":             {`tendril ledger export | tendril ledger verify - --key nonsense`, "is not the key of a ledger"},
		"a checkpoint-out that is there": {`touch j; tendril ledger export --checkpoint-out j`, "does not exist yet"},
	} {
		out, err := sh(test.script)
		if err == nil || !strings.Contains(err.Error(), "exit status 2") || !strings.Contains(out, test.want) ||
			strings.Contains(out, "the ledger does not hold") != (test.want == "the ledger does not hold") {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
}
