//go:build linux

package confine

import (
	"context"
	"errors"
	"sync"

	"tendril/stoma"
	"tendril/terrarium"
)

// Opened is what the Terrariums of all walls have that this host keeps. Like a
// [terrarium.Terrarium] it is safe for concurrent use once it is watched.
type Opened struct {
	Client      *stoma.Client            // nil until the Stoma answered
	Reached     chan terrarium.LimitName // has room for one
	Confinement Confinement

	monitor      *Monitor
	stopWatching func() // waits for whoever watches; nil: nobody does
	closing      sync.Once
	closeErr     error
}

// NewOpened is a Terrarium of which nothing is there yet.
func NewOpened() Opened { return Opened{Reached: make(chan terrarium.LimitName, 1)} }

func (o *Opened) Stoma() *stoma.Client                 { return o.Client }
func (o *Opened) Exceeded() <-chan terrarium.LimitName { return o.Reached }
func (o *Opened) Usage() terrarium.Usage               { return o.monitor.Usage() }

// Watch starts the monitor, which reports to Reached, and whoever else watches: stop, unless
// it is nil, waits for that one.
func (o *Opened) Watch(m *Monitor, stop func()) {
	m.Exceeded, o.monitor = o.Reached, m
	stopMonitor := m.Start()
	o.stopWatching = func() {
		stopMonitor()
		if stop != nil {
			stop()
		}
	}
}

// Shut closes the Terrarium, once: end ends what runs, and remove takes the wall's files away.
// Where something could not be ended they stay, because a Sweep needs them to find it.
func (o *Opened) Shut(ctx context.Context, end, remove func() error) error {
	o.closing.Do(func() {
		if o.stopWatching != nil {
			o.stopWatching()
		}
		o.closeErr = end()
		if o.Client != nil {
			o.Client.Close()
		}
		o.closeErr = errors.Join(o.closeErr, o.Confinement.Release(ctx))
		if o.closeErr == nil {
			o.closeErr = remove()
		}
	})
	return o.closeErr
}
