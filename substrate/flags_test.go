package substrate_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"tendril/substrate"
)

func TestFlags(t *testing.T) {
	base := map[string]string{
		"package.json": `{"name":"x","scripts":{"test":"true"}}`, "sub/package.json": `{"name":"y"}`, "esc": "\x1b[0m\n", "bin": "a\x00b", "run": "#!/bin/sh\n", "Readme": "r\n",
	}
	for name, c := range map[string]struct {
		records []record
		want    []string
	}{
		"ordinary":             {[]record{{substrate.File, "src/main.go", "package main\n\tx\r\n"}}, nil},
		"workflow":             {[]record{{substrate.File, ".github/workflows/ci.yml", "x\n"}}, []string{"ci .github/workflows/ci.yml"}},
		"workflow in capitals": {[]record{{substrate.File, ".GitHub/Workflows/ci.yml", "x\n"}}, []string{"ci .GitHub/Workflows/ci.yml"}},
		"other ci":             {[]record{{substrate.File, ".gitlab-ci.yml", "x\n"}, {substrate.File, "Jenkinsfile", "x\n"}, {substrate.File, ".circleci/config.yml", "x\n"}}, []string{"ci .circleci/config.yml", "ci .gitlab-ci.yml", "ci Jenkinsfile"}},
		"hooks":                {[]record{{substrate.File, ".husky/pre-commit", "x\n"}, {substrate.File, "web/.pre-commit-config.yaml", "x\n"}}, []string{"hook .husky/pre-commit", "hook web/.pre-commit-config.yaml"}},
		"autorun":              {[]record{{substrate.File, ".envrc", "x\n"}, {substrate.File, "a/.vscode/tasks.json", "{}\n"}, {substrate.File, "AGENTS.md", "x\n"}, {substrate.File, "x.code-workspace", "{}"}}, []string{"autorun .envrc", "autorun AGENTS.md", "autorun a/.vscode/tasks.json", "autorun x.code-workspace"}},
		"executable":           {[]record{{substrate.Exec, "run", "#!/bin/sh\n"}, {substrate.Exec, "new", "x\n"}}, []string{"executable new", "executable run"}},
		"links":                {[]record{{substrate.Symlink, "in", "src/x"}, {substrate.Symlink, "d/in", "../Readme"}, {substrate.Symlink, "abs", "/etc/passwd"}, {substrate.Symlink, "d/out", "../../x"}, {substrate.Symlink, "git", ".git/config"}}, []string{"symlink abs", "symlink d/out", "symlink git"}},
		"attributes":           {[]record{{substrate.File, "d/.gitattributes", "* -diff\n"}, {substrate.File, ".lfsconfig", "x\n"}, {substrate.File, ".gitmodules", "\n"}}, []string{"attributes d/.gitattributes", "lfs .lfsconfig", "submodule .gitmodules"}},
		"binary":               {[]record{{substrate.File, "new.bin", "a\x00"}, {substrate.File, "bin", "b\x00"}}, []string{"binary bin", "binary new.bin"}},
		"hidden":               {[]record{{substrate.File, "bidi.go", "a\u202eb\n"}, {substrate.File, "esc2", "\x1b[2J"}, {substrate.File, "zw", "a\u200bb"}, {substrate.File, "tag", "a\U000e0041b"}}, []string{"hidden bidi.go", "hidden esc2", "hidden tag", "hidden zw"}},
		"hidden before":        {[]record{{substrate.File, "esc", "\x1b[0m more\n"}}, nil},
		"emoji":                {[]record{{substrate.File, "e", "\ufeff👩\u200d💻 ❤\ufe0f\n"}}, nil},
		"cut between reads":    {[]record{{substrate.File, "c", strings.Repeat("x", 64<<10-1) + "\u202e"}, {substrate.File, "d", strings.Repeat("€", 64<<10)}}, []string{"hidden c", "long-line c", "long-line d"}},
		"names":                {[]record{{substrate.File, "a\u202eb", "x\n"}, {substrate.File, "a\nb", "x\n"}, {substrate.File, "\xff", "x\n"}}, []string{"name a\nb", "name a\u202eb", "name \xff"}},
		"collision":            {[]record{{substrate.File, "README", "x\n"}, {substrate.File, "SUB/x", "x\n"}}, []string{"collision README", "collision SUB/x"}},
		"scripts":              {[]record{{substrate.File, "package.json", `{"name":"x","scripts":{"test":"true","postinstall":"evil"}}`}}, []string{"scripts package.json"}},
		"same scripts":         {[]record{{substrate.File, "package.json", `{"name":"z","scripts":{"test":"true"}}`}}, nil},
		"scripts unreadable":   {[]record{{substrate.File, "sub/package.json", `{"name":`}}, []string{"scripts sub/package.json"}},
		"deleted":              {[]record{{substrate.Delete, "bin", ""}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			dir := newRepo(t, base)
			r := open(t, newStore(t), dir)
			result, err := grow(t, r, resolve(t, r, ""), meta, c.records...)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, f := range result.Flags {
				got = append(got, string(f.Kind)+" "+f.Path)
			}
			slices.Sort(got)
			slices.Sort(c.want)
			if !slices.Equal(got, c.want) {
				t.Errorf("flags are %q, want %q", got, c.want)
			}
			d, err := r.Diff(context.Background(), git(t, dir, "rev-parse", "main"), result.Commit, substrate.DiffOptions{})
			if err != nil || !slices.Equal(d.Flags, result.Flags) {
				t.Errorf("the diff has other flags: %v, %v", d.Flags, err)
			}
		})
	}
}

func TestFlagsAreBounded(t *testing.T) {
	r := open(t, newStore(t), newRepo(t, map[string]string{"a": "1\n"}))
	var records []record
	for i := range 1000 {
		records = append(records, record{substrate.Exec, fmt.Sprint("x", i), "#!/bin/sh\n"})
	}
	result, err := grow(t, r, resolve(t, r, ""), meta, records...)
	if err != nil {
		t.Fatal(err)
	}
	if last := result.Flags[len(result.Flags)-1]; len(result.Flags) != 201 || last.Note != "800 more paths" {
		t.Errorf("%d flags, the last is %v", len(result.Flags), last)
	}
}

func TestEscape(t *testing.T) {
	for in, want := range map[string]string{
		"plain ünïcode\t✓": "plain ünïcode\t✓", "\x1b[31m": `\x1b[31m`, "\x7f": `\x7f`, "\u0085": `\u0085`, "\u202e": `\u202e`, "\U000e0041": `\U000e0041`,
		"\xff": `\xff`, "a\nb": `a\x0ab`, `\x1b`: `\\x1b`, `C:\dir`: `C:\dir`, "\u2028": `\u2028`, "\ufeff": `\ufeff`, "": "", `\`: `\`,
	} {
		if got := substrate.Escape(in); got != want {
			t.Errorf("Escape(%q) = %q, want %q", in, got, want)
		}
	}
}
