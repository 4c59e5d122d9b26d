package site

import (
	"bytes"
	"errors"
	"io/fs"
	"path/filepath"
	"sync"
	"time"

	"tendril/fault"
)

// Watched is a control plane file that is read again whenever it has changed. It is
// safe for concurrent use.
type Watched[T any] struct {
	path  string
	uid   int
	parse func(file string, data []byte) (T, error)

	mu      sync.Mutex
	seen    version // what was looked at last
	settled bool    // whether the same version has the same content
	data    []byte  // of it
	value   T       // what is in force
	problem error   // why seen is not what is in force; nil if it is
}

// Watch returns the file of that name in the configuration directory of d. Nothing is
// read yet. parse gets the file's path for its errors; it must not keep or change
// data.
func Watch[T any](d Dirs, name string, parse func(file string, data []byte) (T, error)) *Watched[T] {
	return &Watched[T]{path: filepath.Join(d.Config, name), uid: d.uid, parse: parse, settled: true}
}

// Path is where the file is.
func (w *Watched[T]) Path() string { return w.path }

// Current returns what is in force. It looks at the file at each call, and reads it again
// when its inode, size or one of its times is another than before, or changed less than
// a second before it was read. It is refused as in [Dirs.Load], and also where another account than this one
// and root owns or can write a directory above it.
//
// An error says why the file as it is now is not in force, and is returned at each call
// until it is. The value is then the one before, which stays in force, or the zero T if there
// never was one. A file that does not exist is the zero T and no error.
func (w *Watched[T]) Current() (T, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.look(); err != nil {
		return w.value, err
	}
	return w.value, w.problem
}

// look brings the value up to date. Its error is about what may be different at
// the next call without the file having changed.
func (w *Watched[T]) look() error {
	_, err := walk(filepath.Dir(w.path), w.uid)
	if errors.Is(err, fs.ErrNotExist) {
		w.vanish()
		return nil
	}
	if err != nil {
		return unreadable(w.path, withRemedy(err, "TENDRIL_CONFIG_DIR"))
	}
	now, err := versionAt(w.path)
	if err != nil {
		return unreadable(w.path, err)
	}
	if now == w.seen && w.settled {
		return nil
	}
	data, read, err := readVersion(w.path, w.uid)
	if errors.Is(err, fs.ErrNotExist) {
		w.vanish()
		return nil
	}
	if err != nil {
		return unreadable(w.path, err)
	}
	if read != w.seen || !bytes.Equal(data, w.data) {
		w.take(data)
	}
	w.seen, w.data, w.settled = read, data, read.settled(time.Now())
	return nil
}

func (w *Watched[T]) vanish() {
	var none T
	w.value, w.problem = none, nil
	w.seen, w.data, w.settled = version{}, nil, true
}

func (w *Watched[T]) take(data []byte) {
	value, err := w.parse(w.path, data)
	if w.problem = err; err == nil {
		w.value = value
	}
}

// unreadable makes a fault of what kept a file from being read.
func unreadable(file string, err error) error {
	var f *fault.Error
	if errors.As(err, &f) {
		return err
	}
	return fault.New(fault.Unavailable, "read %s: %w", file, err).
		WithHint("make it readable for this account, or name another directory with TENDRIL_CONFIG_DIR")
}
