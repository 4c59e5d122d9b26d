package grant

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tendril/fault"
)

const substratesExample = `version: 1
substrates:
  handbook:
    path: /srv/git/handbook.git
    branch: main
  site:
    url: https://git.example.com:8443/site.git
    provider: docker
`

func TestParseSubstrates(t *testing.T) {
	got, err := ParseSubstrates(SubstratesFileName, []byte(substratesExample))
	if err != nil {
		t.Fatal(err)
	}
	want := SubstratesFile{Version: 1, Substrates: map[SubstrateName]Substrate{
		"handbook": {Line: 4, Path: "/srv/git/handbook.git", Branch: "main"},
		"site":     {Line: 7, URL: "https://git.example.com:8443/site.git", Provider: "docker"},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if bound, err := got.Lookup("site"); err != nil || bound.Provider != "docker" {
		t.Errorf("site is %+v, %v", bound, err)
	}
	for name, hint := range map[string]string{"sites": "did you mean site?", "": "tendril substrate add", "Handbook": "did you mean handbook?", "/srv/git/handbook.git": "tendril substrate add"} {
		_, err := got.Lookup(name)
		if !fault.Is(err, fault.NotFound) || !strings.Contains(err.(*fault.Error).Hint, hint) {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestParseSubstratesRefuses(t *testing.T) {
	bound := func(lines string) string { return "version: 1\nsubstrates:\n  handbook: {" + lines + "}\n" }
	for _, test := range []struct{ name, file, want, hint string }{
		{"nothing", bound(""), "3: handbook: exactly one of path and url is needed", "path: /srv"},
		{"both", bound("path: /a, url: https://h.example/a"), "3: handbook: exactly one of path and url is needed", ""},
		{"another name", "version: 1\nsubstrates:\n  Handbook: {path: /a}\n", `3: substrates: "Handbook" is not the name of a Substrate`, `did you mean "handbook"?`},
		{"every name", "version: 1\nsubstrates:\n  '*': {path: /a}\n", `3: substrates: "*" would also permit what does not exist yet`, ""},
		{"a relative path", bound("path: a/b"), `3: path: "a/b" is not an absolute, clean path`, "without . and .."},
		{"a path with dots", bound("path: /a/../b"), `3: path: "/a/../b" is not an absolute, clean path`, ""},
		{"a home", bound("path: ~/a"), `3: path: "~/a" is not an absolute, clean path`, ""},
		{"a NUL", bound(`path: "/a\0"`), `3: path: "/a\x00" is not an absolute, clean path`, ""},
		{"a URL of this host", bound("url: file:///srv/a"), "3: url: the URL is a path of this host", "write it as `path`"},
		{"a user", bound("url: https://ann@h.example/a"), "3: url: the URL has a user in it", "credential"},
		{"a query", bound("url: 'https://h.example/a?token=x'"), "3: url: the URL has a query or a fragment", ""},
		{"a fragment", bound("url: 'https://h.example/a#x'"), "3: url: the URL has a query or a fragment", ""},
		{"plain text", bound("url: http://h.example/a"), "3: url: the URL is not https", ""},
		{"no repository", bound("url: https://h.example"), "3: url: the path of the URL is not that of a repository", ""},
		{"a slash at the end", bound("url: https://h.example/a/"), "3: url: the path of the URL is not that of a repository", ""},
		{"an upper case host", bound("url: https://H.example/a"), "3: url: the URL is not in its one form", "write https://h.example/a"},
		{"dots", bound("url: https://h.example/a/../b"), "3: url: the URL is not in its one form", "write https://h.example/b"},
		{"another transport", bound("url: ssh://h.example/a"), "3: url: the URL's scheme is neither https nor http", ""},
		{"a helper's URL", bound("url: 'ext::sh -c x'"), "3: url: the URL holds a space or a control character (0x20)", ""},
		{"a short form", bound("url: 'h.example:a'"), "3: url: the URL has no scheme and host", ""},
		{"an option for a branch", bound("path: /a, branch: --upload-pack=x"), `3: branch: "--upload-pack=x" is not the short name of a branch`, ""},
		{"a range for a branch", bound("path: /a, branch: a..b"), `3: branch: "a..b" is not the short name of a branch`, ""},
		{"a lock for a branch", bound("path: /a, branch: a.lock/b"), `3: branch: "a.lock/b" is not the short name of a branch`, ""},
		{"an expression for a branch", bound("path: /a, branch: 'a^{/x}'"), `3: branch: "a^{/x}" is not the short name of a branch`, ""},
		{"a wall nobody knows", bound("path: /a, provider: dokcer"), `3: provider: there is no provider "dokcer"`, `did you mean "docker"?`},
		{"twice", "version: 1\nsubstrates:\n  a: {path: /a}\n  a: {path: /b}\n", `4: key "a" comes twice; the first is on line 3`, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := ParseSubstrates(SubstratesFileName, []byte(test.file))
			refusedWith(t, err, SubstratesFileName+":"+test.want, test.hint)
			if len(got.Substrates) != 0 {
				t.Errorf("part of it holds: %+v", got)
			}
		})
	}
}

// A secret that somebody put into a URL does not come back in the refusal.
func TestASecretInAURLIsNotRepeated(t *testing.T) {
	for _, url := range []string{
		"https://ann:hunter2@h.example/a", "https://hunter2@h.example/a", "https://h.example/a?token=hunter2", "https://h.example/a#hunter2",
		"https://ann:hunter2@[::1/a", "http://ann:hunter2@h.example/a", "https://ann:hunter2@h.example", "https://ann:hunter2%40@h.example/a",
		"ann:hunter2@h.example/a", "https:ann:hunter2@h.example/a",
	} {
		err := new(URL).UnmarshalText([]byte(url))
		if err == nil {
			t.Errorf("%s is taken", url)
		} else if f := err.(*fault.Error); strings.Contains(f.Detail+f.Hint, "hunter2") {
			t.Errorf("%s: %s (%s)", url, f.Detail, f.Hint)
		}
	}
}
