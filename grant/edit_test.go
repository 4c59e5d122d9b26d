package grant

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"tendril/fault"
)

const kept = `# who may do what here
version: 1 # the only one

grants:
    # the nightly build
    - pollen: ci-docs # see the wiki
      substrates: [handbook, site]
      # no logs: they are noisy
      classes:
        - sprout.grow
        - run.get # to poll
      expires: 2027-06-30
      # renew in May

    -   pollen: bench
        substrates: ["handbook"]
        classes: [terrarium.probe]
`

func TestAdd(t *testing.T) {
	g := Grant{Pollen: "ann", Substrates: Set[SubstrateName]{"handbook"}, Classes: Set[Class]{"run.get", "run.list"}}
	added := "    - pollen: ann\n      substrates: [handbook]\n      classes: [run.get, run.list]\n"
	for _, test := range []struct{ name, text, want string }{
		{"to nothing", "", "version: 1\ngrants:\n" + dedent(added)},
		{"to a file without the key", "version: 1\n# later\n\n", "version: 1\n# later\ngrants:\n" + dedent(added) + "\n"},
		{"without a line end", "version: 1", "version: 1\ngrants:\n" + dedent(added)},
		{"to an empty list", "version: 1\ngrants: [] # none yet\n", "version: 1\ngrants: # none yet\n" + dedent(added)},
		{"to a list", kept, kept + added},
		{"before another key", "grants:\n- pollen: bench\n  substrates: [site]\n  classes: [run.get]\n  # a comment of bench\n\n# the version\nversion: 1\n",
			"grants:\n- pollen: bench\n  substrates: [site]\n  classes: [run.get]\n  # a comment of bench\n- pollen: ann\n  substrates: [handbook]\n  classes: [run.get, run.list]\n\n# the version\nversion: 1\n"},
		{"after what is commented out", "version: 1\ngrants:\n    - pollen: bench\n      substrates: [site]\n      classes: [run.get]\n#    - pollen: old\n",
			"version: 1\ngrants:\n    - pollen: bench\n      substrates: [site]\n      classes: [run.get]\n#    - pollen: old\n" + added},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := Add(FileName, []byte(test.text), g)
			if err != nil {
				t.Fatal(err)
			}
			if string(got) != test.want {
				t.Errorf("got\n%s\nwant\n%s", got, test.want)
			}
		})
	}
}

// dedent is a grant as it is written where nobody indented before.
func dedent(block string) string {
	return strings.ReplaceAll("\n"+block, "\n    ", "\n  ")[1:]
}

func TestAddRefuses(t *testing.T) {
	good := Grant{Pollen: "ann", Substrates: Set[SubstrateName]{"handbook"}, Classes: Set[Class]{"run.get"}}
	for _, test := range []struct {
		name, text string
		change     func(*Grant)
		want       string
	}{
		{"no Substrate", "", func(g *Grant) { g.Substrates = nil }, "the grant has no substrates"},
		{"the Botanist's class", "", func(g *Grant) { g.Classes = Set[Class]{"fruit.accept"} }, "grants.yaml:5: classes: cannot be granted: fruit.accept is the Botanist's alone"},
		{"a name that is more than one", "", func(g *Grant) { g.Pollen = "ann\n    substrates: [site]" }, `grants.yaml:3: pollen: "ann\n    substrates: [site]" is not the name of a Pollen`},
		{"a wildcard", "", func(g *Grant) { g.Substrates = Set[SubstrateName]{"*"} }, `grants.yaml:4: substrates: "*" would also permit what does not exist yet`},
		{"nothing of a limit", "", func(g *Grant) { g.Daily.Runs = new(Count(0)) }, "grants.yaml:6: runs: 0 is not a limit"},
		{"a file that is broken", "version: 1\ngrants:\n  - polen: x\n", func(*Grant) {}, `grants.yaml:3: unknown key "polen" (did you mean "pollen"?)`},
		{"a list in brackets", "version: 1\ngrants: [{pollen: a, substrates: [b], classes: [run.get]}]\n", func(*Grant) {}, `grants.yaml:2: "grants" is not written in a way that this program edits`},
		{"a file in brackets", "{version: 1, grants: []}\n", func(*Grant) {}, `grants.yaml:1: "grants" is not written in a way that this program edits`},
		{"line ends that hide", "version: 1\ngrants:\n  - pollen: a # \u2028\n    substrates: [b]\n    classes: [run.get]\nx: 1\n", func(*Grant) {}, "grants.yaml:3: the line holds a line break that editors do not show (U+2028)"},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := good
			test.change(&g)
			got, err := Add(FileName, []byte(test.text), g)
			if !fault.Is(err, fault.Invalid) || err.Error() != test.want {
				t.Errorf("got  %v\nwant %s", err, test.want)
			}
			if got != nil {
				t.Errorf("a text is returned:\n%s", got)
			}
		})
	}
}

func TestRevoke(t *testing.T) {
	for _, test := range []struct {
		name, pollen, class, substrate string
		changed                        int
		without                        string // what is gone from the text
		with                           string // what is in its place
	}{
		{"everything", "ci-docs", "", "", 1, kept[strings.Index(kept, "    - pollen: ci-docs"):strings.Index(kept, "\n    -   pollen: bench")], ""},
		{"a class", "ci-docs", "run.get", "", 1, "        - run.get # to poll\n", ""},
		{"a Substrate", "ci-docs", "", "site", 1, ", site", ""},
		{"the first Substrate", "ci-docs", "", "handbook", 1, "handbook, site]\n      # no", "site]\n      # no"},
		{"the last class", "bench", "terrarium.probe", "", 1, kept[strings.Index(kept, "    -   pollen: bench"):], ""},
		{"the last Substrate", "bench", "", "handbook", 1, kept[strings.Index(kept, "    -   pollen: bench"):], ""},
		{"what it does not hold", "bench", "run.get", "", 0, "", ""},
		{"what nobody holds", "ann", "", "", 0, "", ""},
		{"a class on another Substrate", "bench", "terrarium.probe", "site", 0, "", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, changed, err := Revoke(FileName, []byte(kept), test.pollen, test.class, test.substrate)
			if err != nil || changed != test.changed {
				t.Fatalf("changed = %d, %v", changed, err)
			}
			if want := strings.Replace(kept, test.without, test.with, 1); string(got) != want {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		})
	}
}

func TestRevokeDividesAGrant(t *testing.T) {
	got, changed, err := Revoke(FileName, []byte(kept), "ci-docs", "run.get", "site")
	if err != nil || changed != 1 {
		t.Fatalf("changed = %d, %v", changed, err)
	}
	want := strings.Replace(kept, ", site]", "]", 1) +
		"    - pollen: ci-docs\n      substrates: [site]\n      classes: [sprout.grow]\n      expires: 2027-06-30\n"
	if string(got) != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestRevokeTheOnlyGrant(t *testing.T) {
	text := "version: 1\ngrants: # none but this\n  # for now\n  - pollen: ann\n    substrates: [site]\n    classes: [run.get]\n# the end\n"
	got, changed, err := Revoke(FileName, []byte(text), "ann", "", "")
	want := "version: 1\ngrants: [] # none but this\n  # for now\n# the end\n"
	if err != nil || changed != 1 || string(got) != want {
		t.Errorf("changed = %d, %v\n%s", changed, err, got)
	}
}

// A line separator ends a comment for YAML and no line for an editor: the lines of the two
// would not be the same.
func TestAnEditThatWouldMissIsRefused(t *testing.T) {
	text := "version: 1 # \u2028\ngrants:\n"
	for _, pollen := range []string{"ann", "ben", "cy"} {
		text += "  - {pollen: " + pollen + ", substrates: [site], classes: [run.get]}\n"
	}
	got, _, err := Revoke(FileName, []byte(text), "ann", "", "")
	if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "a line break that editors do not show") || got != nil {
		t.Errorf("%v\n%s", err, got)
	}
	text = "version: 1 # \u2028\nsubstrates:\n  a: {path: /a}\n  b: {path: /b}\n  c: {path: /c}\n"
	got, err = RemoveSubstrate(SubstratesFileName, []byte(text), "a")
	if !fault.Is(err, fault.Invalid) || got != nil {
		t.Errorf("%v\n%s", err, got)
	}
}

func TestSubstrateEdits(t *testing.T) {
	text, err := AddSubstrate(SubstratesFileName, nil, "handbook", Substrate{Path: "/srv/hand book.git", Branch: "main"})
	if err != nil {
		t.Fatal(err)
	}
	text, err = AddSubstrate(SubstratesFileName, append(text, "  # fetched\n"...), "null", Substrate{URL: "https://git.example.com/site.git", Provider: "docker"})
	if err != nil {
		t.Fatal(err)
	}
	want := "version: 1\nsubstrates:\n  handbook:\n    path: /srv/hand book.git\n    branch: main\n  # fetched\n" +
		"  \"null\":\n    url: https://git.example.com/site.git\n    provider: docker\n"
	if string(text) != want {
		t.Errorf("got\n%s\nwant\n%s", text, want)
	}
	if _, err := AddSubstrate(SubstratesFileName, text, "handbook", Substrate{Path: "/elsewhere"}); !fault.Is(err, fault.Invalid) ||
		err.Error() != "the Substrate handbook is bound already, in substrates.yaml:4" {
		t.Errorf("a name that is bound: %v", err)
	}
	if _, err := AddSubstrate(SubstratesFileName, text, "Site", Substrate{Path: "/elsewhere"}); !fault.Is(err, fault.Invalid) {
		t.Errorf("no name: %v", err)
	}
	if _, err := AddSubstrate(SubstratesFileName, text, "site", Substrate{}); !fault.Is(err, fault.Invalid) {
		t.Errorf("no repository: %v", err)
	}
	if _, err := RemoveSubstrate(SubstratesFileName, text, "handbooks"); !fault.Is(err, fault.NotFound) {
		t.Errorf("a name that is not bound: %v", err)
	}
	for _, step := range []struct{ remove, want string }{
		{"handbook", "version: 1\nsubstrates:\n  # fetched\n  \"null\":\n    url: https://git.example.com/site.git\n    provider: docker\n"},
		{"null", "version: 1\nsubstrates: {}\n  # fetched\n"},
	} {
		if text, err = RemoveSubstrate(SubstratesFileName, text, step.remove); err != nil || string(text) != step.want {
			t.Fatalf("%v\n%s", err, text)
		}
	}
	text, err = AddSubstrate(SubstratesFileName, text, "again", Substrate{Path: "/srv/again"})
	if want := "version: 1\nsubstrates:\n  again:\n    path: /srv/again\n  # fetched\n"; err != nil || string(text) != want {
		t.Errorf("%v\n%s", err, text)
	}
}

// drawText writes grants, and puts comments and blank lines between the lines.
func drawText(t *rapid.T) (text []byte, grants []Grant) {
	grants = rapid.SliceOfN(rapid.Custom(drawGrant), 1, 4).Draw(t, "grants")
	for i, g := range grants {
		if g.Validate() != nil {
			grants[i].Provider = ""
		}
	}
	var err error
	for _, g := range grants {
		if text, err = Add(FileName, text, g); err != nil {
			t.Fatal(err)
		}
	}
	var lines []string
	for line := range strings.Lines(string(text)) {
		if rapid.IntRange(0, 3).Draw(t, "note") == 0 {
			lines = append(lines, strings.Repeat(" ", rapid.IntRange(0, 6).Draw(t, "by"))+rapid.SampledFrom([]string{"# a note: [b\n", "\n", "#\n"}).Draw(t, "line"))
		}
		lines = append(lines, line)
	}
	return []byte(strings.Join(lines, "")), grants
}

func digests(t interface{ Fatal(...any) }, text []byte) []string {
	f, err := Parse(FileName, text)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, g := range f.Grants {
		all = append(all, g.Digest())
	}
	return all
}

func TestAddAddsLinesAndNothingElse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text, grants := drawText(t)
		g := drawGrant(t)
		got, err := Add(FileName, text, g)
		if err != nil {
			t.Fatal(err)
		}
		var want []string
		for _, g := range append(grants, g) {
			want = append(want, g.Digest())
		}
		if !slices.Equal(digests(t, got), want) {
			t.Fatalf("the grants are others:\n%s", got)
		}
		same := 0
		for same < len(text) && text[same] == got[same] {
			same++
		}
		if !strings.HasSuffix(string(got), string(text[same:])) {
			t.Fatalf("what was there is changed:\n%s\n---\n%s", text, got)
		}
	})
}

func TestRevokeTakesAwayWhatIsNamedAndNothingElse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text, _ := drawText(t)
		pollen := rapid.SampledFrom(pollens).Draw(t, "pollen")
		class := rapid.SampledFrom([]string{"", "sprout.grow", "run.list", "run.get"}).Draw(t, "class")
		substrate := rapid.SampledFrom(append([]string{""}, substrates...)).Draw(t, "substrate")
		after, _, err := Revoke(FileName, text, pollen, class, substrate)
		if err != nil {
			t.Fatal(err)
		}
		before, err := Parse(FileName, text)
		if err != nil {
			t.Fatal(err)
		}
		f, err := Parse(FileName, after)
		if err != nil {
			t.Fatal(err)
		}
		for range 20 {
			q := drawRequest(t, before)
			named := q.Pollen == pollen && (class == "" || q.Class == class) && (substrate == "" || q.Substrate == substrate)
			got, had := f.Decide(q).Permitted, before.Decide(q).Permitted
			if got && (named || !had) || had && !got && !named && q.Substrate != "" {
				t.Fatalf("permitted before: %v, after: %v: %+v\n%s\n---\n%s", had, got, q, text, after)
			}
		}
		lines := strings.SplitAfter(string(text), "\n")
		if head, _, _ := strings.Cut(string(text), "grants:"); !strings.HasPrefix(string(after), head) {
			t.Fatalf("what stands above the grants is changed:\n%s\n---\n%s", text, after)
		}
		for i, g := range before.Grants {
			end := len(lines)
			if i+1 < len(before.Grants) {
				end = int(before.Grants[i+1].Line) - 1
			}
			own := content(strings.Join(lines[g.Line-1:end], ""))
			if string(g.Pollen) != pollen && !strings.Contains(content(string(after)), own) {
				t.Fatalf("the text of another grant is changed:\n%s\n---\n%s", text, after)
			}
		}
	})
}

// content is a text without its comments and blank lines.
func content(text string) string {
	var kept strings.Builder
	for line := range strings.Lines(text) {
		if trimmed := strings.TrimSpace(line); trimmed != "" && trimmed[0] != '#' {
			kept.WriteString(line)
		}
	}
	return kept.String()
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{example, kept, decided, "", "version: 1\ngrants: []\n", "version: 1\ngrants: [{pollen: a, substrates: [b], classes: [run.get]}]", grantWith("classes: ['*']"), grantWith("expires: 2027-06-30T18:00:00+02:00")} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		file, err := Parse(FileName, text)
		if err != nil {
			if !fault.Is(err, fault.Invalid) || !strings.HasPrefix(err.Error(), FileName+":") {
				t.Errorf("the refusal does not say where: %v", err)
			}
			return
		}
		for _, g := range file.Grants {
			if err := g.Validate(); err != nil {
				t.Error(err)
			}
			for _, class := range g.Classes {
				if !slices.Contains(grantable(), string(class)) {
					t.Errorf("the class %s is granted", class)
				}
			}
			if again := mustRead(t, g); again.Digest() != g.Digest() {
				t.Errorf("a grant is written as another: %+v, %+v", g, again)
			}
		}
	})
}

// mustRead writes a grant and reads it again.
func mustRead(t *testing.T, g Grant) Grant {
	t.Helper()
	text, err := Add(FileName, nil, g)
	if err != nil {
		t.Fatal(err)
	}
	return mustParse(t, string(text)).Grants[0]
}

func FuzzParseSubstrates(f *testing.F) {
	for _, seed := range []string{substratesExample, "", "version: 1\nsubstrates: {}\n", "version: 1\nsubstrates: {a: {path: /a}}\n", "version: 1\nsubstrates:\n  a: {url: 'https://[::1]/a'}\n"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		file, err := ParseSubstrates(SubstratesFileName, text)
		if err != nil {
			if !fault.Is(err, fault.Invalid) || !strings.HasPrefix(err.Error(), SubstratesFileName+":") {
				t.Errorf("the refusal does not say where: %v", err)
			}
			return
		}
		for name, bound := range file.Substrates {
			if err := bound.Validate(); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if _, err := AddSubstrate(SubstratesFileName, nil, name, bound); err != nil {
				t.Errorf("%s cannot be written: %v", name, err)
			}
		}
	})
}

// FuzzEdit: of a file that is understood, an edit makes one that says what was meant, or none.
func FuzzEdit(f *testing.F) {
	for _, seed := range []string{example, kept, decided, "version: 1\ngrants: []\n", "grants:\n- pollen: ci-docs\n  substrates: [a]\n  classes: [run.get]\n\nversion: 1",
		"version: 1\ngrants:\n  -\n    pollen: ci-docs\n    substrates: [a, b]\n    classes: ['run.get', \"run.list\"]\r\n", "version: 1\ngrants:\n  - {pollen: ci-docs, substrates: [a], classes: [run.get]}\n",
		"version: 1\ngrants:\n  - pollen: ci-docs\n    substrates:\n    - a\n    -\n      b\n    classes: [run.get]\n...\n"} {
		f.Add([]byte(seed), "ci-docs", "run.get", "a")
		f.Add([]byte(seed), "ci-docs", "", "")
	}
	f.Fuzz(func(t *testing.T, text []byte, pollen, class, substrate string) {
		before, err := Parse(FileName, text)
		if err != nil {
			return
		}
		g := Grant{Pollen: "ann", Substrates: Set[SubstrateName]{"site"}, Classes: Set[Class]{"run.get"}}
		if after, err := Add(FileName, text, g); err == nil {
			if got := digests(t, after); !slices.Equal(got, append(digests(t, text), g.Digest())) {
				t.Errorf("added to\n%s\nis\n%s", text, after)
			}
		} else if !fault.Is(err, fault.Invalid) {
			t.Error(err)
		}
		after, _, err := Revoke(FileName, text, pollen, class, substrate)
		if err != nil {
			if !fault.Is(err, fault.Invalid) {
				t.Error(err)
			}
			return
		}
		others := func(f File) string {
			var all []string
			for _, g := range f.Grants {
				if string(g.Pollen) != pollen {
					all = append(all, g.Digest())
				}
			}
			return fmt.Sprint(all)
		}
		if left := mustParse(t, string(after)); others(before) != others(left) {
			t.Errorf("others' grants changed:\n%s\n---\n%s", text, after)
		}
	})
}
