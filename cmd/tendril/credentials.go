package main

import (
	"context"
	"fmt"
	"strings"

	"tendril/capability"
	"tendril/display"
)

type credentialCommands struct {
	Add    credentialAddCommand    `cmd:"" help:"Say where a secret comes from and where it may be sent."`
	List   credentialListCommand   `cmd:"" help:"List the credentials, without their secrets."`
	Remove credentialRemoveCommand `cmd:"" help:"Forget a credential; its secret stays where it is."`
}

type credentialAddCommand struct {
	Name string `arg:"" help:"Its name: lower case, digits and single hyphens."`

	Env         string `group:"Where the secret is (one of them; it is never given here):" placeholder:"VARIABLE" help:"In the environment of the tendril that decides."`
	File        string `group:"Where the secret is (one of them; it is never given here):" placeholder:"PATH" type:"path" help:"In a file that its account alone can read."`
	Command     string `group:"Where the secret is (one of them; it is never given here):" placeholder:"WORDS" help:"What a program prints, such as 'pass show api'. No shell: words are divided by spaces."`
	AgeFile     string `group:"Where the secret is (one of them; it is never given here):" placeholder:"PATH" type:"path" help:"In a file that was encrypted with age."`
	AgeIdentity string `group:"Where the secret is (one of them; it is never given here):" placeholder:"PATH" type:"path" help:"The identity that decrypts it."`

	Scheme string   `group:"Where it may be sent:" placeholder:"http" help:"Plain text, if that is meant (default: https)."`
	Host   string   `group:"Where it may be sent:" required:"" placeholder:"HOST" help:"The host, or *.HOST for all below it."`
	Port   int      `group:"Where it may be sent:" placeholder:"N" help:"The port (default: the scheme's)."`
	Method []string `group:"Where it may be sent:" placeholder:"METHOD" help:"How; can be given more than once (default: GET and HEAD)."`
	Path   []string `group:"Where it may be sent:" placeholder:"PATH" help:"To which paths, such as /v1/*; can be given more than once (default: all)."`

	Header   string `group:"How a request carries it (one of them):" placeholder:"NAME" help:"In this header."`
	Template string `group:"How a request carries it (one of them):" placeholder:"TEXT" help:"Around the secret in that header, such as 'Bearer {secret}'."`
	Basic    string `group:"How a request carries it (one of them):" placeholder:"USER" help:"As this user's password."`
	Query    string `group:"How a request carries it (one of them):" placeholder:"NAME" help:"In this parameter of the query."`
}

func (a *credentialAddCommand) Run(ctx context.Context, c *console) error {
	output, err := c.invoke(ctx, "credential.add", capability.CredentialAddInput{
		Name: a.Name, Env: a.Env, File: a.File, Command: strings.Fields(a.Command), AgeFile: a.AgeFile, AgeIdentity: a.AgeIdentity,
		Scheme: a.Scheme, Host: a.Host, Port: a.Port, Methods: a.Method, Paths: a.Path,
		Header: a.Header, Template: a.Template, Basic: a.Basic, Query: a.Query,
	})
	return c.oneCredential(output, err)
}

func (c *console) oneCredential(output any, err error) error {
	return show(c, output, err, func(one capability.Credential) error {
		fmt.Fprintf(c.stdout, "%s: %s, for %s, as %s\n", display.Line(one.Name), display.Line(one.Source), display.Line(one.Bind), display.Line(one.Attach))
		return nil
	})
}

type credentialListCommand struct{}

func (*credentialListCommand) Run(ctx context.Context, c *console) error {
	output, err := c.invoke(ctx, "credential.list", capability.EmptyInput{})
	return list(c, output, err, "CREDENTIAL\tSOURCE\tFOR\tAS", func(one capability.Credential) string {
		return fmt.Sprintf("%s\t%s\t%s\t%s", display.Line(one.Name), display.Line(one.Source), display.Line(one.Bind), display.Line(one.Attach))
	})
}

type credentialRemoveCommand struct {
	Name string `arg:"" help:"The credential's name."`
}

func (r *credentialRemoveCommand) Run(ctx context.Context, c *console) error {
	output, err := c.invoke(ctx, "credential.remove", capability.CredentialInput{Name: r.Name})
	return c.oneCredential(output, err)
}
