package acceptance_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tendril/fault"
	"tendril/ledger"
	"tendril/run"
)

// A grant gives what was published of a repository: not what lies uncommitted beside it, a
// stash, what was left behind, or another's Fruit.
func TestAGrantGivesWhatWasPublished(t *testing.T) {
	g := newGarden(t)
	file := g.tokenIn("agent", g.pollenFor("agent", "sprout.grow", "stoma.pass"))
	other := g.tokenIn("other", g.pollenFor("other", "sprout.grow"))
	if err := os.WriteFile(filepath.Join(g.repo, "secret.txt"), []byte("uncommitted\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	dangling := g.git("commit-tree", "-m", "left behind", "HEAD^{tree}")
	g.git("update-ref", "refs/stash", g.git("commit-tree", "-m", "stashed", "HEAD^{tree}"))
	grown := g.succeed("--token-file", other, "--json", "grow", "--substrate", "handbook", "--", "sh", "-c", "echo theirs >theirs.txt")
	var theirs run.Run
	if err := json.Unmarshal([]byte(grown.stdout), &theirs); err != nil {
		t.Fatal(err)
	}
	// Not below /tmp, which is another directory inside and so is looked at there.
	place, err := os.MkdirTemp("/var/tmp", "tendril-kept-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(place) })
	hidden := filepath.Join(place, "tool")
	if err := os.WriteFile(hidden, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, flags := range map[string][]string{
		"the working tree":     {"--dirty"},
		"a stash":              {"--base", "refs/stash"},
		"an object":            {"--base", dangling},
		"another's Fruit":      {"--base", *theirs.Branch},
		"its commit":           {"--base", *theirs.Commit},
		"its full name":        {"--base", "refs/heads/" + *theirs.Branch},
		"what is not there":    {"--base", "nowhere"},
		"an executable of his": {"--provider", "runsc"},
	} {
		command := []string{"--", "true"}
		if name == "an executable of his" {
			command = []string{"--", hidden}
		}
		args := append([]string{"--token-file", file, "--json", "pass", "--substrate", "handbook"}, flags...)
		said := g.tendril(append(args, command...)...)
		told := refused(t, name, said)
		if told.Kind != fault.Denied && told.Kind != fault.NotFound {
			t.Errorf("%s: %+v", name, told)
		}
		if all := said.stdout + said.stderr; strings.Contains(all, g.repo) || strings.Contains(all, "on this host") || strings.Contains(all, "untracked") {
			t.Errorf("%s: it is told %s", name, all)
		}
	}
	for name, base := range map[string]string{"a branch": "topic", "a commit": g.git("rev-parse", "HEAD"), "by default": ""} {
		args := []string{"--token-file", file, "--json", "grow", "--substrate", "handbook"}
		if base != "" {
			args = append(args, "--base", base)
		}
		said := g.succeed(append(args, "--", "sh", "-c", "echo mine >mine.txt; test ! -e secret.txt")...)
		var mine run.Run
		if err := json.Unmarshal([]byte(said.stdout), &mine); err != nil {
			t.Fatal(err)
		}
		// Its own Fruit is its own to go on from.
		g.succeed("--token-file", file, "pass", "--substrate", "handbook", "--base", *mine.Branch, "--", "cat", "mine.txt")
		if strings.Contains(said.stderr, "untracked") {
			t.Errorf("%s: it is told of the working tree: %s", name, said.stderr)
		}
	}
}

// The day's runs are part of the decision: explained as they are decided, and refused as a
// denial.
func TestTheDaysRunsAreDecidedOn(t *testing.T) {
	g := newGarden(t)
	file := g.tokenIn("daily", g.pollenFor("daily", "run.list"))
	g.succeed("grant", "add", "--pollen", "daily", "--substrate", "handbook", "--class", "stoma.pass", "--daily-runs", "1")
	pass := []string{"--token-file", file, "--json", "pass", "--substrate", "handbook", "--", "true"}
	explain := []string{"--json", "grant", "explain", "--pollen", "daily", "--class", "stoma.pass", "--substrate", "handbook"}
	if said := g.tendril(explain...); said.status != 0 {
		t.Errorf("before: %+v", said)
	}
	g.succeed(pass...)
	if said := g.tendril(explain...); said.status != run.ExitRefused || !strings.Contains(said.stdout, "used up") {
		t.Errorf("after: %+v", said)
	}
	if told := refused(t, "pass", g.tendril(pass...)); told.Kind != fault.Denied {
		t.Errorf("the second: %+v", told)
	}
	size, err := g.store.LedgerSize(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	lines, err := g.store.LedgerLines(t.Context(), size-1, 1)
	if err != nil {
		t.Fatal(err)
	}
	if row, err := ledger.ParseRow(lines[0]); err != nil || row.Decision != ledger.Deny {
		t.Errorf("recorded as %s, %v", lines[0], err)
	}
	// Another grant with more of them covers what the first does not.
	g.succeed("grant", "add", "--pollen", "daily", "--substrate", "handbook", "--class", "stoma.pass", "--daily-runs", "2")
	g.succeed(pass...)
	refused(t, "pass", g.tendril(pass...))
}

// What a pass printed is there also when something ended it, and what ended it is said.
func TestAPassThatIsEndedSaysSo(t *testing.T) {
	g := newGarden(t)
	file := g.tokenIn("life", g.pollenFor("life", "stoma.pass"))
	p := g.start("--token-file", file, "--json", "pass", "--substrate", "handbook", "--", "sh", "-c", "echo ready; sleep 1000")
	g.awaitOutput(p, nil, "ready")
	g.succeed("pollen", "revoke", "life")
	said := p.wait()
	var passed struct {
		Run    run.Run `json:"run"`
		Stdout []byte  `json:"stdout_b64"`
	}
	if err := json.Unmarshal([]byte(said.stdout), &passed); err != nil || said.status != run.ExitStopped || passed.Run.Stop == nil || string(passed.Stdout) != "ready\n" {
		t.Errorf("%+v: %v", said, err)
	}
}

// Nobody asked for a recovery, and so nobody is named for it.
func TestARecoveryIsNobodysRequest(t *testing.T) {
	g := newGarden(t)
	file := g.tokenIn("ik", g.pollenFor("ik", "stoma.pass"))
	p := g.start("--token-file", file, "pass", "--substrate", "handbook", "--", "sh", "-c", "echo ready; sleep 1000")
	r := g.awaitOutput(p, nil, "ready")
	p.kill()
	g.succeed("run", "list")
	export := g.succeed("ledger", "export").stdout
	for line := range strings.Lines(export) {
		row, err := ledger.ParseRow([]byte(strings.TrimSuffix(line, "\n")))
		if err != nil {
			t.Fatal(err)
		}
		if row.Change == "run.recovered" && (row.Actor != "" || row.Capability != "" || row.Run != string(r.ID) || row.State != "lost") {
			t.Errorf("recorded as %s", line)
		}
	}
	if !strings.Contains(export, "run.recovered") {
		t.Error("the recovery is not recorded")
	}
}

// The ledger's digests of requests cannot be tried out: they are keyed.
func TestRequestsCannotBeGuessed(t *testing.T) {
	g := newGarden(t)
	g.succeed("pass", "--substrate", g.repo, "--env", "PIN=1234", "--", "true")
	if export := g.succeed("ledger", "export").stdout; strings.Contains(export, `"input":"sha256:`) || !strings.Contains(export, `"input":"hmac-sha256:`) {
		t.Errorf("the ledger is\n%s", export)
	}
}

// A Substrate is the repository itself: a way to it, or a directory below it, is not kept.
func TestASubstrateIsItsRepository(t *testing.T) {
	g := newGarden(t)
	below := filepath.Join(g.repo, "below")
	link := filepath.Join(g.home, "link")
	if err := os.Mkdir(below, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(g.repo, link); err != nil {
		t.Fatal(err)
	}
	for name, path := range map[string]string{"below": below, "link": link} {
		if said := g.succeed("substrate", "add", name, "--path", path); !strings.HasSuffix(strings.TrimSpace(said.stdout), " "+g.repo) {
			t.Errorf("%s is bound to %s", name, said.stdout)
		}
	}
}
