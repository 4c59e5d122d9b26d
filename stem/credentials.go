//go:build linux

package stem

import (
	"context"
	"strconv"

	"tendril/capability"
	"tendril/credential"
	"tendril/destination"
	"tendril/grant"
)

// credentials is the credentials file in force.
func (s *Stem) credentials() (credential.File, error) {
	file, err := s.credentialsFile.Current()
	return file, s.tolerate(credential.FileName, err, file.Version)
}

// boundTo are the credentials of a grant that a request would carry.
func (s *Stem) boundTo(g grant.Grant, url destination.URL, method string) ([]credential.Named, error) {
	if g.Credentials == nil {
		return nil, nil
	}
	file, err := s.credentials()
	if err != nil {
		return nil, err
	}
	var names []string
	for _, name := range g.Credentials {
		if _, err := file.Lookup(string(name)); err == nil { // one that was removed is bound to nothing
			names = append(names, string(name))
		}
	}
	return file.For(names, url, method)
}

func (s *Stem) listCredentials(context.Context, *call, capability.EmptyInput) ([]capability.Credential, error) {
	file, err := s.credentials()
	list := []capability.Credential{}
	for _, name := range file.Names() {
		list = append(list, credentialOf(name, file.Credentials[credential.Name(name)]))
	}
	return list, err
}

func credentialOf(name string, c credential.Credential) capability.Credential {
	return capability.Credential{Name: name, Source: c.Source.String(), Bind: c.Bind.String(), Attach: c.Attach.String()}
}

func (s *Stem) addCredential(ctx context.Context, c *call, in capability.CredentialAddInput) (capability.Credential, error) {
	var name credential.Name
	var added credential.Credential
	bind := &added.Bind
	if len(in.Command) > 0 {
		added.Source.Command = in.Command
	}
	err := first(
		spell("name", in.Name, &name),
		spell("env", in.Env, &added.Source.Env), spell("file", in.File, &added.Source.File),
		spell("age_file", in.AgeFile, &added.Source.Age.File), spell("age_identity", in.AgeIdentity, &added.Source.Age.Identity),
		spell("scheme", in.Scheme, &bind.Scheme), spell("host", in.Host, &bind.Host),
		spellAll("method", in.Methods, (*[]destination.Method)(&bind.Methods)), spellAll("path", in.Paths, &bind.Paths),
		spell("header", in.Header, &added.Attach.Header), spell("template", in.Template, &added.Attach.Template),
		spell("basic", in.Basic, &added.Attach.Basic), spell("query", in.Query, &added.Attach.Query),
	)
	if in.Port != 0 {
		err = first(err, spell("port", strconv.Itoa(in.Port), &bind.Port))
	}
	if err != nil {
		return capability.Credential{}, err
	}
	_, err = s.edit(ctx, c, credential.FileName, "credential.bound", in.Name, func(path string, text []byte) ([]byte, error) {
		return credential.Add(path, text, name, added)
	})
	return credentialOf(in.Name, added), err
}

func (s *Stem) removeCredential(ctx context.Context, c *call, in capability.CredentialInput) (capability.Credential, error) {
	var removed credential.Credential
	_, err := s.edit(ctx, c, credential.FileName, "credential.removed", in.Name, func(path string, text []byte) ([]byte, error) {
		var file credential.File
		if text != nil {
			parsed, err := credential.Parse(path, text)
			if err != nil {
				return nil, err
			}
			file = parsed
		}
		if _, err := file.Lookup(in.Name); err != nil {
			return nil, err
		}
		removed = file.Credentials[credential.Name(in.Name)]
		return credential.Remove(path, text, in.Name)
	})
	return credentialOf(in.Name, removed), err
}
