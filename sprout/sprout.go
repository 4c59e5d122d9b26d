// Package sprout is the small built-in agent: a loop that asks a model what to do, does
// it with five tools, and shows it the result, until the model says that it is done. It
// runs inside a Terrarium like any other agent and knows nothing of tendril: its model is
// a base URL on the loopback, its key is none, its work is what it leaves in the
// directory.
//
// It promises to end, and to stay small while it runs: the history, each result, each
// answer, the number of turns and of attempts are bounded. What a model answers is
// checked strictly and never trusted; the tools for files do not leave the directory.
//
// It protects nothing from the model: the shell does whatever the Terrarium around it
// permits. What it reports is a claim like everything that comes from inside.
package sprout

import (
	"context"
	"errors"
	"fmt"
	"io"
)

// placeholder is the key that providers' formats demand. The Stem attaches the real one.
const placeholder = "placeholder"

// Why a Sprout ended without being done. Compare with errors.Is.
var (
	ErrUsage = errors.New("usage") // the Options are wrong
	ErrStuck = errors.New("stuck") // it went round in circles, or the model's answers were of no use
	ErrSpent = errors.New("spent") // the budget is used up
)

// Routes name the formats that a model may speak.
const (
	RouteAnthropic = "anthropic" // Messages, at BASE/v1/messages
	RouteOpenAI    = "openai"    // Chat Completions, at BASE/chat/completions
)

// Options say what to do. Everything is required.
type Options struct {
	Ask     string // what to do, at most MaxAsk bytes
	Model   string // as the provider names it
	Route   string
	BaseURL string    // http, on the loopback
	Dir     string    // the working directory
	Turns   int       // answers of the model at most
	Context int       // estimated tokens of one request at most, at least MinContext
	Output  int       // tokens of one answer at most
	Log     io.Writer // progress, one line a call
}

// Bounds of the Options.
const (
	MaxAsk     = 32 << 10
	MinContext = 32_000
)

func (o *Options) check() error {
	switch {
	case o.Ask == "" || len(o.Ask) > MaxAsk:
		return fmt.Errorf("%w: there must be something to do, in at most %d bytes", ErrUsage, MaxAsk)
	case o.Model == "":
		return fmt.Errorf("%w: a model must be named", ErrUsage)
	case o.Turns < 1 || o.Output < 1:
		return fmt.Errorf("%w: the numbers of turns and of output tokens must be positive", ErrUsage)
	case o.Context < MinContext:
		return fmt.Errorf("%w: the context must have at least %d tokens", ErrUsage, MinContext)
	}
	return nil
}

// Run works until the model is done, and returns its last words. It ends early when ctx
// does, with the context's cause. It is not for use by several goroutines on one
// directory.
func Run(ctx context.Context, o Options) (string, error) {
	l, err := newLoop(o)
	if err != nil {
		return "", err
	}
	defer l.close()
	return l.run(ctx)
}

func newLoop(o Options) (*loop, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	work, err := openWorkplace(o.Dir)
	if err != nil {
		return nil, err
	}
	l := &loop{
		tools: work.tools(), close: work.close, log: o.Log, turns: o.Turns, context: o.Context, pause: pause,
		history: history{system: system(work.dir), ask: o.Ask},
	}
	switch o.Route {
	case RouteAnthropic:
		l.model, err = newAnthropic(o, l.tools)
	case RouteOpenAI:
		l.model, err = newOpenAI(o, l.tools)
	default:
		err = fmt.Errorf("there is no route %q: anthropic or openai", o.Route)
	}
	if err != nil {
		work.close()
		return nil, fmt.Errorf("%w: %w", ErrUsage, err)
	}
	return l, nil
}

func system(dir string) string {
	return `You are a software agent that works alone on a Git repository in ` + dir + `. Nobody can answer questions while you work.

Use the tools to look, change files and run commands; paths are relative to ` + dir + `. Look before you change, and run the tests or whatever else shows that the work is right. Change no more than what is asked for.

You need not commit: what the files are in the end is what counts, and a person reviews it. You are in a sandbox. There is no network but a proxy that permits some destinations and refuses the rest; a refusal is final, so find another way.

Old results are cut from what you are shown. When you are done, or cannot go on, answer without a tool call: say in a few sentences what you changed and what remains.`
}
