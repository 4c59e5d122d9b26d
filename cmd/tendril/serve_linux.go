package main

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"tendril/api"
	"tendril/api/client"
	"tendril/display"
	"tendril/fault"
	"tendril/run"
	"tendril/site"
	"tendril/stem"
)

type serveCommand struct {
	SocketMode string `default:"0600" placeholder:"MODE" help:"Who of this host may connect, as chmod has it. Connecting proves nothing: 0666 lets everybody present a token."`
}

// Help is what serve's help says beyond its one line.
func (*serveCommand) Help() string {
	return "Whoever connects is the Botanist if the kernel says that their account owns this site, and a Pollen if they " +
		"present its token; nothing else makes anybody somebody. An interrupt ends what is under way in order."
}

func (v *serveCommand) Run(ctx context.Context, c *console) error {
	if err := c.takesNoToken("serve asks for nothing"); err != nil {
		return err
	}
	bits, err := strconv.ParseUint(v.SocketMode, 8, 16)
	if err != nil || bits&^0o666 != 0 || bits&0o600 != 0o600 {
		return fault.New(fault.Invalid, "%q is not the mode of a socket", v.SocketMode).WithHint("0600 is for this account alone, 0660 for its group too, 0666 for everybody")
	}
	socket, _, err := c.socket()
	if err != nil {
		return err
	}
	s, err := c.openStem(ctx)
	if err != nil {
		return err
	}
	defer s.Close()
	listener, err := api.Listen(socket, fs.FileMode(bits))
	if err != nil {
		return err
	}
	c.notice("tendril: serving on " + display.Line(socket))
	if err := client.CheckServing(socket, bits&0o066 != 0); err != nil {
		c.notice("tendril: " + sentence(run.ErrorOf(err)))
	}
	server := api.NewServer(kernel{s}, func(text string) { c.notice("tendril: " + text) })
	return server.Serve(ctx, listener)
}

// kernel is a Stem as the socket sees it.
type kernel struct{ stem *stem.Stem }

func (k kernel) Call(ctx context.Context, caller api.Caller, name string, input []byte) api.Answer {
	who := stem.ByPeer(caller.UID)
	if caller.Token != nil {
		who = who.WithToken(*caller.Token)
	}
	answer, err := k.stem.InvokeJSON(ctx, who, name, input)
	return api.Answer{
		Row: answer.Row, Output: answer.Output, Err: err,
		Authenticated: answer.Proven, Botanist: answer.Proven && answer.Actor.Botanist(),
	}
}

// socket is where this site is served, or where the caller said.
func (c *console) socket() (path string, chosen bool, err error) {
	if c.caller.flags.Socket != "" {
		return c.caller.flags.Socket, true, nil
	}
	here, err := site.Find(os.Getenv, os.Getuid())
	if err != nil {
		return "", false, err
	}
	return filepath.Join(here.Runtime, "tendril.sock"), false, nil
}
