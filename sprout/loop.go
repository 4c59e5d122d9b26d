package sprout

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// Bounds of patience.
const (
	maxUseless = 5               // answers of no use in a row
	maxBusy    = 6               // more attempts for one answer
	maxPause   = 5 * time.Minute // a server that wants to be asked later than this is given up
	maxAtOnce  = 8               // calls of one answer that are done
	maxRepeats = 3               // the same calls with the same results
	longCircle = 3               // turns that a circle of calls may have to be seen
)

type loop struct {
	model   model
	tools   []tool
	close   func()
	log     io.Writer
	turns   int
	context int // estimated tokens
	history history
	pause   func(context.Context, time.Duration) error

	useless int  // answers of no use, in a row
	worked  bool // a tool was used, or the model insisted that none is needed
	past    [][sha256.Size]byte
}

func (l *loop) run(ctx context.Context) (string, error) {
	for range l.turns {
		said, err := l.answer(ctx)
		var f *failure
		switch {
		case errors.As(err, &f) && f.kind == useless:
			err = l.complain(turn{}, start(f.Error(), 500))
		case err != nil:
		case len(said.calls) > 0:
			err = l.work(ctx, said)
		case said.text == "":
			err = l.complain(turn{}, "it was empty")
		case said.cut:
			err = l.complain(said, "it was cut off because it was too long")
		case !l.worked:
			l.worked = true
			l.note(said, "You have used no tool. Go on if there is something to do; else say again, in a few words, that there is not.")
		default:
			return said.text, nil
		}
		if err != nil {
			return "", err
		}
	}
	return "", fmt.Errorf("%w: not done after %d turns", ErrStuck, l.turns)
}

// answer asks the model, again while it is busy.
func (l *loop) answer(ctx context.Context) (turn, error) {
	for attempt := 1; ; attempt++ {
		l.history.fit(l.context)
		said, err := l.model.next(ctx, &l.history)
		if ctx.Err() != nil {
			return turn{}, context.Cause(ctx)
		}
		var f *failure
		if !errors.As(err, &f) {
			return said, err
		}
		switch f.kind {
		case spent:
			return turn{}, fmt.Errorf("%w: %w", ErrSpent, f)
		case tooLong:
			// The estimate is wrong, or the model's context is smaller than was said.
			l.context = min(l.context, l.history.tokens()) / 2
		case busy:
			if f.after == 0 {
				f.after = time.Second << min(attempt-1, 5)
			}
		default:
			return turn{}, f
		}
		if attempt > maxBusy {
			return turn{}, fmt.Errorf("%w (given up after %d attempts)", f, attempt)
		}
		if f.after > maxPause {
			return turn{}, fmt.Errorf("%w (it wants to be asked again after %s)", f, f.after)
		}
		l.say("! %s: again in %s", f, f.after)
		if err := l.pause(ctx, f.after); err != nil {
			return turn{}, err
		}
	}
}

// complain tells the model that its answer was of no use, as often as is reasonable.
func (l *loop) complain(said turn, why string) error {
	l.say("! an answer of no use: %s", why)
	l.note(said, "Your last answer was of no use: "+why+". Go on with a tool call, or say in a few words that you are done.")
	return l.count(why)
}

// count counts an answer of no use.
func (l *loop) count(why string) error {
	if l.useless++; l.useless == maxUseless {
		return fmt.Errorf("%w: %d answers in a row were of no use, the last because %s", ErrStuck, maxUseless, why)
	}
	return nil
}

func (l *loop) note(said turn, note string) {
	l.history.exchanges = append(l.history.exchanges, exchange{said: said, note: note})
}

// work does the calls of an answer, one after the other.
func (l *loop) work(ctx context.Context, said turn) error {
	if said.text != "" {
		l.say("> %s", said.text)
	}
	x := exchange{said: said}
	sense, last := false, ""
	for i := range said.calls {
		c := &said.calls[i]
		if i >= maxAtOnce {
			x.results = append(x.results, result{fmt.Sprintf("not done: at most %d calls at once", maxAtOnce), true})
			continue
		}
		r, sensible := perform(ctx, l.tools, *c)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if sensible {
			sense = true
		} else {
			last = r.text
		}
		x.results = append(x.results, r)
		l.say("%s %s → %s", c.name, start(c.subject(), 100), outcome(r))
	}
	for i := range said.calls {
		said.calls[i].input = repeatable(said.calls[i].input)
	}
	l.history.exchanges = append(l.history.exchanges, x)
	if !sense {
		return l.count(last)
	}
	l.useless, l.worked = 0, true
	return l.circle(x)
}

// outcome is the last line of a result, where the shell says how a command ended.
func outcome(r result) string {
	text := strings.TrimRight(r.text, "\n")
	last := text[strings.LastIndexByte(text, '\n')+1:]
	if r.failed {
		return "failed: " + start(last, 100)
	}
	if strings.HasPrefix(last, "[") {
		return start(last, 100)
	}
	return fmt.Sprintf("%d bytes", len(r.text))
}

// circle reports that the model goes round: the last turns are the same calls with the
// same results over and over.
func (l *loop) circle(x exchange) error {
	digest := sha256.New()
	for i, c := range x.said.calls {
		_, _ = fmt.Fprintf(digest, "%q %q %q %t\n", c.name, c.input, x.results[i].text, x.results[i].failed)
	}
	l.past = append(l.past, [sha256.Size]byte(digest.Sum(nil)))
	l.past = l.past[max(0, len(l.past)-maxRepeats*longCircle):]
	for turns := 1; turns <= longCircle; turns++ {
		if n := len(l.past); n >= maxRepeats*turns && slices.Equal(l.past[n-maxRepeats*turns:n-turns], l.past[n-(maxRepeats-1)*turns:]) {
			return fmt.Errorf("%w: the same calls had the same results %d times", ErrStuck, maxRepeats)
		}
	}
	return nil
}

// say writes one line for a person.
func (l *loop) say(format string, args ...any) {
	_, _ = fmt.Fprintln(l.log, line(fmt.Sprintf(format, args...), 240))
}

// pause waits, or until the context ends.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}
