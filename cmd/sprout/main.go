// Command sprout is the small built-in agent. It runs inside a Terrarium, in the
// directory where it is started, and asks the model at the base URL that its environment
// names.
//
// Its exit status is 0 when the model said that it is done, 1 when something failed or
// a signal ended it, 2 for a wrong command line, 3 when it is stuck, and 4 when the
// budget is used up.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"tendril/sprout"
)

// baseURL names the variables that providers' own tools read.
var baseURL = map[string]string{
	sprout.RouteAnthropic: "ANTHROPIC_BASE_URL",
	sprout.RouteOpenAI:    "OPENAI_BASE_URL",
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	status := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(status)
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	options, err := parse(args, stdout)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	var last string
	if err == nil {
		options.Log = stdout
		last, err = sprout.Run(ctx, options)
	}
	if err != nil {
		_, _ = fmt.Fprintln(stderr, "sprout:", sprout.Plain(err.Error()))
	}
	switch {
	case err == nil:
		_, _ = fmt.Fprintln(stdout, sprout.Plain(last))
		return 0
	case errors.Is(err, sprout.ErrUsage):
		return 2
	case errors.Is(err, sprout.ErrStuck):
		return 3
	case errors.Is(err, sprout.ErrSpent):
		return 4
	}
	return 1
}

func parse(args []string, help io.Writer) (sprout.Options, error) {
	var o sprout.Options
	flags := flag.NewFlagSet("sprout", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // errors are said once, by run
	flags.StringVar(&o.Ask, "ask", "", "what to do")
	flags.StringVar(&o.Model, "model", "", "the model's name")
	flags.StringVar(&o.Route, "route", "", "anthropic (at ANTHROPIC_BASE_URL) or openai (at OPENAI_BASE_URL)")
	flags.IntVar(&o.Turns, "turns", 60, "answers of the model at most")
	flags.IntVar(&o.Context, "context", 80_000, "estimated tokens of a request at most")
	flags.IntVar(&o.Output, "output", 8_192, "tokens of an answer at most")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			_, _ = fmt.Fprintln(help, "usage: sprout --ask TEXT --model NAME --route anthropic|openai")
			flags.SetOutput(help)
			flags.PrintDefaults()
			return o, err
		}
		return o, fmt.Errorf("%w: %w", sprout.ErrUsage, err)
	}
	if flags.NArg() > 0 {
		return o, fmt.Errorf("%w: %q is no flag: what to do comes with --ask", sprout.ErrUsage, flags.Arg(0))
	}
	dir, err := os.Getwd()
	if err != nil {
		return o, err
	}
	o.Dir, o.BaseURL = dir, os.Getenv(baseURL[o.Route])
	if name := baseURL[o.Route]; name != "" && o.BaseURL == "" {
		return o, fmt.Errorf("%w: %s is not set: it names the model's route", sprout.ErrUsage, name)
	}
	return o, nil
}
