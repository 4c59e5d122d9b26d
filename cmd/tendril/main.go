// Command tendril lets an agent work alone behind a wall, and hands its work over
// as a Git branch.
//
// This package is an edge: it turns a command line into one call of Invoke, and
// what comes back into text. Everything a person sees goes through package
// display; the answer is on stdout, everything else on stderr.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"
	"tendril/display"
	"tendril/fault"
	"tendril/pollen"
	"tendril/run"
)

// version is set by the build.
var version = "unknown"

func main() {
	os.Exit(command(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// grammar is the whole command line. Verbs are the capabilities' names with a
// space.
type grammar struct {
	JSON bool `name:"json" help:"Print one JSON value on stdout (streaming verbs: one object a line)."`
	callerFlags

	Grow   growCommand `cmd:"" help:"Run a command behind a wall and hand its work over as a branch."`
	Pass   passCommand `cmd:"" help:"Run a command behind a wall and print what it prints, without a Fruit."`
	Sprout struct {
		Grow growCommand `cmd:"" help:"The same as grow."`
	} `cmd:"" help:"Sprouts: the workers."`
	Stoma struct {
		Pass passCommand `cmd:"" help:"The same as pass."`
	} `cmd:"" help:"Stomata: the ways into a wall."`
	Run        runCommands        `cmd:"" help:"Runs: what was asked for and what became of it."`
	Fruit      fruitCommands      `cmd:"" help:"Fruit: the results, for review."`
	Substrate  substrateCommands  `cmd:"" help:"Substrates: the repositories that have a name."`
	Pollen     pollenCommands     `cmd:"" help:"Pollen: the identities that others ask with."`
	Grant      grantCommands      `cmd:"" help:"Grants: what each Pollen may do on which Substrate."`
	Credential credentialCommands `cmd:"" help:"Credentials: secrets that are attached outside."`
	Egress     egressCommands     `cmd:"" help:"Egress: what leaves, and why not."`
	Ledger     ledgerCommands     `cmd:"" help:"The ledger: what was decided, in rows that nobody rewrites unnoticed."`
	Policy     policyCommands     `cmd:"" help:"The policy: which boundary permits which action."`
	Terrarium  terrariumCommands  `cmd:"" help:"Terrariums: the walls of this host."`
	Serve      serveCommand       `cmd:"" help:"Answer callers on a local socket until interrupted."`
	Call       callCommand        `cmd:"" help:"Ask for a capability by its name, with JSON in and out."`
	Version    versionCommand     `cmd:"" help:"Say which tendril this is."`
}

// console is where a command reads and writes.
type console struct {
	stdin  io.Reader
	stdout *answer
	stderr io.Writer
	json   bool
	argv   []string // what stands after --
	live   *display.Live
	caller caller
}

// status is the exit status that a verb ends with when it did not fail itself.
type status int

func (s status) Error() string { return fmt.Sprintf("exit status %d", int(s)) }

// command runs one command line and returns its exit status.
func command(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	// Ctrl-C ends a run in order, and so does a terminal that is closed: its work is
	// kept. A second signal ends tendril.
	ending := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) { // as nohup(1) has it
		ending = append(ending, syscall.SIGHUP)
	}
	// net/http says on the standard log what a server sent that it could not place, which may
	// be a secret that was attached to a request; nothing of ours uses that log.
	log.SetOutput(io.Discard)
	ctx, stop := signal.NotifyContext(context.Background(), ending...)
	defer stop()
	// That nobody reads what is printed is an error of the write, and no reason to
	// drop a run. Caught, not ignored: what is ignored stays so in child processes.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	context.AfterFunc(ctx, stop)

	c := &console{stdin: stdin, stdout: &answer{Writer: stdout}, live: display.NewLive(stderr), stderr: stderr}
	defer c.live.Close()
	context.AfterFunc(ctx, func() {
		if !errors.Is(context.Cause(ctx), context.Canceled) { // a signal, not our own stop
			c.notice("tendril: ending in order, and keeping the work so far; interrupt again to leave at once")
		}
	})
	if i := slices.Index(args, "--"); i >= 0 {
		args, c.argv = args[:i], args[i+1:]
		if c.argv == nil {
			c.argv = []string{}
		}
	}
	c.json = slices.Contains(args, "--json")
	err := c.parseAndRun(ctx, args)
	if err == nil && c.stdout.err != nil {
		err = fault.New(fault.Internal, "writing the answer: %w", c.stdout.err)
	}
	var s status
	switch {
	case err == nil:
		return 0
	case errors.As(err, &s):
		return int(s)
	}
	c.fail(err)
	return exitStatus(err)
}

func (c *console) parseAndRun(ctx context.Context, args []string) (err error) {
	var g grammar
	exited := false
	parser, err := kong.New(&g,
		kong.Name("tendril"),
		kong.Description("Let an agent work alone behind a wall. The work comes back as a Git branch.\n\nStart with: tendril grow -- COMMAND..."),
		kong.Writers(c.stdout, c.stderr),
		kong.Exit(func(int) { exited = true }),
		kong.UsageOnError(),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, NoExpandSubcommands: true}),
		kong.BindTo(ctx, (*context.Context)(nil)),
		kong.Bind(c),
	)
	if err != nil {
		return fmt.Errorf("the command line's grammar: %w", err)
	}
	if len(args) == 0 && c.argv == nil {
		args = []string{"--help"}
	}
	parsed, err := parser.Parse(args)
	if exited {
		return nil // help was asked for and printed
	}
	c.json = c.json || isCall(parsed, err) // what is asked in JSON is answered in JSON
	for _, arg := range args {
		// An empty value is an unset variable of a script, never a choice.
		if arg == "" || (strings.HasPrefix(arg, "-") && strings.HasSuffix(arg, "=")) {
			return fault.New(fault.Invalid, "an argument is empty%s", after(arg)).WithHint("leave it out, or see why its value is not set")
		}
	}
	if err != nil {
		return usageError(err)
	}
	c.caller.flags = g.callerFlags
	if c.argv != nil && !strings.HasSuffix(parsed.Command(), "grow") && !strings.HasSuffix(parsed.Command(), "pass") {
		return fault.New(fault.Invalid, "%s takes no command after --", parsed.Command())
	}
	return parsed.Run()
}

// isCall says whether the verb is call, also in a command line that is wrong after it.
func isCall(parsed *kong.Context, err error) bool {
	var wrong *kong.ParseError
	if errors.As(err, &wrong) {
		parsed = wrong.Context
	}
	return parsed != nil && parsed.Selected() != nil && parsed.Selected().Name == "call"
}

// after names the flag whose value is missing.
func after(arg string) string {
	if arg == "" {
		return ""
	}
	return ": " + arg
}

// usageError says what is wrong with a command line and how to mend it.
func usageError(err error) error {
	f := fault.New(fault.Invalid, "%w", err)
	if rest, ok := strings.CutPrefix(err.Error(), "unexpected argument "); ok {
		return fault.New(fault.Invalid, "unexpected argument %s", rest).
			WithHint("a Sprout's command stands after --, as in: tendril grow -- make test")
	}
	return f.WithHint("see tendril --help")
}

// fail prints an error: one line for a person, one object for a program.
func (c *console) fail(err error) {
	e := withoutTokens(run.ErrorOf(err))
	if c.json {
		c.printJSON(struct {
			Error *run.Error `json:"error"`
		}{e})
		return
	}
	c.notice("tendril: " + sentence(e))
}

// withoutTokens is an error that repeats no token: one may have been given where a name
// belongs, and errors end in logs.
func withoutTokens(e *run.Error) *run.Error {
	redacted := func(s *string) *string {
		if s == nil {
			return nil
		}
		return new(pollen.Redact(*s))
	}
	return &run.Error{Kind: e.Kind, Detail: pollen.Redact(e.Detail), Rule: redacted(e.Rule), Hint: redacted(e.Hint)}
}

// sentence is an error on one line.
func sentence(e *run.Error) string {
	text := display.Line(e.Detail)
	if e.Rule != nil {
		text += " (rule: " + display.Line(*e.Rule) + ")"
	}
	if e.Hint != nil {
		text += "; " + display.Line(*e.Hint)
	}
	return text
}

// exitStatus is 2 when nothing was done because of what was asked or of what this
// host is, and 1 for a defect or a boundary that broke.
func exitStatus(err error) int {
	switch fault.KindOf(err) {
	case fault.Internal, fault.BrokenBoundary:
		return run.ExitInternal
	default:
		return run.ExitRefused
	}
}
