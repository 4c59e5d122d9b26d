package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"tendril/capability"
	"tendril/display"
	"tendril/fault"
)

type pollenCommands struct {
	Issue  pollenIssueCommand  `cmd:"" help:"Issue an identity and show its token, once."`
	List   pollenListCommand   `cmd:"" help:"List the identities that were issued."`
	Rotate pollenRotateCommand `cmd:"" help:"Give an identity another token; the one before proves nothing any more."`
	Revoke pollenRevokeCommand `cmd:"" help:"End an identity and what runs on its behalf."`
}

// tokenOutput says where a new token goes.
type tokenOutput struct {
	TokenOut string `placeholder:"FILE" type:"path" help:"Write the token into this new file, readable by you alone, instead of to stdout."`
}

type pollenIssueCommand struct {
	Name string               `arg:"" help:"Its name: lower case, digits and single hyphens."`
	TTL  *capability.Duration `name:"ttl" placeholder:"TIME" help:"How long it is good, such as 720h (default: 90 days)."`
	UID  *int                 `name:"uid" placeholder:"N" help:"Only this account of the host may present it."`
	tokenOutput
}

func (i *pollenIssueCommand) Run(ctx context.Context, c *console) error {
	return i.show(c, func() (any, error) {
		return c.invoke(ctx, "pollen.issue", capability.PollenIssueInput{Name: i.Name, TTL: i.TTL, UID: i.UID})
	})
}

type pollenRotateCommand struct {
	Name string `arg:"" help:"The Pollen's name."`
	tokenOutput
}

func (r *pollenRotateCommand) Run(ctx context.Context, c *console) error {
	return r.show(c, func() (any, error) { return c.invoke(ctx, "pollen.rotate", capability.PollenInput{Name: r.Name}) })
}

// show gets a token and puts it where it was wanted. The file is made first: a token
// that cannot be put anywhere must not be issued.
func (t tokenOutput) show(c *console, issue func() (any, error)) error {
	file, err := t.create()
	if err != nil {
		return err
	}
	if tree := workingTree(t.TokenOut); file != nil && tree != "" {
		c.notice(fmt.Sprintf("tendril: %s lies in the Git working tree %s: git add takes the token into a commit, and a run with --dirty shows it to its Sprout; keep tokens elsewhere",
			display.Line(t.TokenOut), display.Line(tree)))
	}
	output, err := issue()
	if err != nil {
		if file != nil {
			err = errors.Join(err, file.Close(), os.Remove(t.TokenOut))
		}
		return err
	}
	issued := output.(capability.IssuedPollen)
	if file != nil {
		_, err := fmt.Fprintln(file, issued.Token)
		if err := errors.Join(err, file.Sync(), file.Close()); err != nil {
			return fault.New(fault.Unavailable, "writing the token: %w", err).WithHint("get another one: tendril pollen rotate %s", issued.Pollen.Name)
		}
		issued.Token = ""
	}
	if c.json {
		c.printJSON(issued)
		return nil
	}
	c.notice(fmt.Sprintf("tendril: %s is good until %s; the token is shown this once", display.Line(issued.Pollen.Name), at(issued.Pollen.Expires.Time)))
	if file == nil {
		fmt.Fprintln(c.stdout, display.Line(issued.Token))
	}
	return nil
}

func (t tokenOutput) create() (*os.File, error) {
	if t.TokenOut == "" {
		return nil, nil
	}
	file, err := os.OpenFile(t.TokenOut, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, fault.New(fault.Invalid, "making the file for the token: %w", err).WithHint("name a file that does not exist yet")
	}
	return file, nil
}

// workingTree returns the Git working tree that a file lies in; "" if there is none.
func workingTree(file string) string {
	dir, err := filepath.EvalSymlinks(filepath.Dir(file))
	if err != nil {
		return ""
	}
	for {
		if _, err := os.Lstat(filepath.Join(dir, ".git")); err == nil {
			return dir
		}
		if filepath.Dir(dir) == dir {
			return ""
		}
		dir = filepath.Dir(dir)
	}
}

func at(t time.Time) string { return t.Local().Format(time.DateTime) }

type pollenListCommand struct{}

func (*pollenListCommand) Run(ctx context.Context, c *console) error {
	output, err := c.invoke(ctx, "pollen.list", capability.EmptyInput{})
	return list(c, output, err, "POLLEN\tSTATE\tUID\tISSUED\tEXPIRES", func(p capability.Pollen) string {
		uid := "any"
		if p.UID != nil {
			uid = fmt.Sprint(*p.UID)
		}
		return fmt.Sprintf("%s\t%s\t%s\t%s\t%s", display.Line(p.Name), pollenState(p), uid, at(p.Issued.Time), at(p.Expires.Time))
	})
}

func pollenState(p capability.Pollen) string {
	switch {
	case p.Live:
		return "good"
	case p.Revoked != nil:
		return "revoked " + at(p.Revoked.Time)
	default:
		return "expired"
	}
}

type pollenRevokeCommand struct {
	Name string `arg:"" help:"The Pollen's name."`
}

func (r *pollenRevokeCommand) Run(ctx context.Context, c *console) error {
	output, err := c.invoke(ctx, "pollen.revoke", capability.PollenInput{Name: r.Name})
	return show(c, output, err, func(p capability.Pollen) error {
		fmt.Fprintf(c.stdout, "%s is revoked; what runs on its behalf is being ended\n", display.Line(p.Name))
		return nil
	})
}
