package capability

import (
	"strings"

	"tendril/fault"
	"tendril/run"
)

// FetchInput asks for one file from outside.
type FetchInput struct {
	Substrate run.Substrate `json:"substrate"` // whose grant permits it
	URL       string        `json:"url"`
	Digest    string        `json:"digest"` // "sha256:" and 64 hexadecimal digits that it has to have; empty: any
	Limit     *Bytes        `json:"limit"`  // the most that it may have; null: 16 MiB
}

// MostFetched is the most that one answer holds, and what it may hold when nobody says.
const MostFetched = Bytes(16 << 20)

// Validate refuses what no answer could hold. What the URL means is judged where URLs are.
func (in FetchInput) Validate() error {
	if in.Limit != nil && (*in.Limit < 1 || *in.Limit > MostFetched) {
		return fault.New(fault.Invalid, "a file of %v is not between 1B and %v", *in.Limit, MostFetched)
	}
	return firstError(validSubstrate(in.Substrate), validURL(in.URL), validDigest(in.Digest))
}

// Subject is the Substrate whose grant permits it.
func (in FetchInput) Subject() Subject { return about(in.Substrate) }

const longestURL = 8 << 10

func validURL(url string) error {
	if url == "" || len(url) > longestURL {
		return fault.New(fault.Invalid, "a URL has 1 to %d bytes, not %d", longestURL, len(url))
	}
	return nil
}

func validDigest(digest string) error {
	if digest == "" {
		return nil
	}
	hex, ok := strings.CutPrefix(digest, "sha256:")
	if !ok || len(hex) != 64 || strings.Trim(hex, "0123456789abcdef") != "" {
		return fault.New(fault.Invalid, "%q is not a digest", clip(digest)).WithHint("write sha256: and 64 hexadecimal digits in lower case, as sha256sum prints them")
	}
	return nil
}

// Fetched is a file from outside.
type Fetched struct {
	URL     string `json:"url"`    // as it was asked for, in its one form
	Final   string `json:"final"`  // where it came from after redirects, each of them decided on
	Digest  string `json:"digest"` // sha256:…
	Size    int64  `json:"size"`
	Content []byte `json:"content_b64"`
}

// EgressExplainInput asks whether a request would be permitted, and why.
type EgressExplainInput struct {
	URL       string `json:"url"`
	Method    string `json:"method"`    // empty: GET
	Pollen    string `json:"pollen"`    // empty: the Botanist
	Substrate string `json:"substrate"` // empty: any that a grant of the Pollen names
}

// Validate refuses what is too long for any name or URL.
func (in EgressExplainInput) Validate() error {
	return firstError(validURL(in.URL), validName("method", in.Method), validName("pollen", in.Pollen), validName("substrate", in.Substrate))
}

// Subject is nothing in particular: the question is whether another may.
func (EgressExplainInput) Subject() Subject { return Subject{} }

// EgressExplanation is the decision itself, without a request being sent.
type EgressExplanation struct {
	Permitted   bool     `json:"permitted"`
	Classes     []string `json:"classes"`     // those of the capabilities that reach out which would send it
	URL         string   `json:"url"`         // in its one form: what would be sent
	Rule        string   `json:"rule"`        // what decided: of several grants that permit it, the first
	Inspected   bool     `json:"inspected"`   // false for a tunnel that nobody looks into
	Credentials []string `json:"credentials"` // names of those that the rule's grant attaches
	Unreadable  []string `json:"unreadable"`  // why secrets of these cannot be read now; commands are not run for it
	Reasons     []string `json:"reasons"`     // for each grant, what its rules say
}

// CredentialAddInput says where a secret comes from, where it may be sent, and how. It
// never holds the secret. Its keys are those of the credentials file, and what the file
// may hold is judged there.
type CredentialAddInput struct {
	Name string `json:"name"`

	Env         string   `json:"env"` // exactly one of the four sources
	File        string   `json:"file"`
	Command     []string `json:"command"`
	AgeFile     string   `json:"age_file"`
	AgeIdentity string   `json:"age_identity"`

	Scheme  string   `json:"scheme"` // empty: https
	Host    string   `json:"host"`
	Port    int      `json:"port"`    // 0: the scheme's
	Methods []string `json:"methods"` // null: GET and HEAD
	Paths   []string `json:"paths"`   // null: every path

	Header   string `json:"header"` // exactly one of header, basic and query
	Template string `json:"template"`
	Basic    string `json:"basic"`
	Query    string `json:"query"`
}

// Validate refuses lists that no file would hold.
func (in CredentialAddInput) Validate() error {
	for field, list := range map[string][]string{"command": in.Command, "methods": in.Methods, "paths": in.Paths} {
		if len(list) > mostNamed {
			return fault.New(fault.Invalid, "%s has %d parts, more than %d", field, len(list), mostNamed)
		}
		for _, part := range list {
			if err := validName(field, part); err != nil {
				return err
			}
		}
	}
	for field, text := range map[string]string{
		"name": in.Name, "env": in.Env, "file": in.File, "age_file": in.AgeFile, "age_identity": in.AgeIdentity, "scheme": in.Scheme, "host": in.Host,
		"header": in.Header, "template": in.Template, "basic": in.Basic, "query": in.Query,
	} {
		if err := validName(field, text); err != nil {
			return err
		}
	}
	return nil
}

// Subject is nothing in particular.
func (CredentialAddInput) Subject() Subject { return Subject{} }

// CredentialInput names one credential.
type CredentialInput struct {
	Name string `json:"name"`
}

// Validate refuses what is too long for any name.
func (in CredentialInput) Validate() error { return validName("name", in.Name) }

// Subject is nothing in particular.
func (CredentialInput) Subject() Subject { return Subject{} }

// Credential is where a secret comes from, where it may be sent and how. The secret is
// not in it.
type Credential struct {
	Name   string `json:"name"`
	Source string `json:"source"`
	Bind   string `json:"bind"`
	Attach string `json:"attach"`
}
