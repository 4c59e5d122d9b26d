//go:build linux

package microvm

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"tendril/erofs"
)

// files are what is laid over the root of one run, and the arguments of its Stoma.
type files struct {
	args []string
	over map[string]content // by path inside
}

// content is a file of the Stem's own, or one that it made.
type content struct {
	source string // a path of the host; "": data
	data   []byte
	mode   os.FileMode
}

// write makes the drive that carries them.
func (f files) write(path string) error { return writeImage(path, f.fill) }

// writeImage makes an EROFS image in which everything is root's.
func writeImage(path string, fill func(*erofs.Writer) error) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	image := erofs.New(f, erofs.Options{Time: time.Unix(1, 0)})
	if err = fill(image); err == nil {
		err = image.Close()
	}
	return errors.Join(err, f.Close())
}

func (f files) fill(image *erofs.Writer) error {
	if _, err := image.File("args", erofs.Attr{Perm: 0o600}, strings.NewReader(list(f.args))); err != nil {
		return err
	}
	targets := slices.Sorted(maps.Keys(f.over))
	if _, err := image.File("over/list", erofs.Attr{Perm: 0o600}, strings.NewReader(list(targets))); err != nil {
		return err
	}
	for i, target := range targets {
		if err := f.over[target].add(image, fmt.Sprintf("over/%d", i)); err != nil {
			return err
		}
	}
	return nil
}

// list ends each string with a NUL.
func list(words []string) string {
	var b strings.Builder
	for _, w := range words {
		b.WriteString(w)
		b.WriteByte(0)
	}
	return b.String()
}

func (c content) add(image *erofs.Writer, name string) error {
	var from io.Reader = bytes.NewReader(c.data)
	if c.source != "" {
		f, err := os.Open(c.source)
		if err != nil {
			return err
		}
		defer f.Close()
		from = f
	}
	_, err := image.File(name, erofs.Attr{Perm: c.mode}, from)
	return err
}

// fillBareRoot makes the places that the guest needs of a root, and nothing else.
func fillBareRoot(image *erofs.Writer) error {
	for _, d := range []struct {
		path string
		mode os.FileMode
	}{
		{".tendril", 0o711}, {".tendril/private", 0o700}, {".tendril/private/base", 0o700}, {".tendril/private/scratch", 0o700},
		{"dev", 0o755}, {"proc", 0o755}, {"tmp", 0o777 | os.ModeSticky}, {"workspace", 0o755}, {"home/sprout", 0o755},
	} {
		if err := image.Dir(d.path, erofs.Attr{Perm: d.mode}); err != nil {
			return err
		}
	}
	for _, f := range []struct{ path, text string }{{".tendril/stoma", ""}, {"etc/hostname", "terrarium\n"}} {
		if _, err := image.File(f.path, erofs.Attr{Perm: 0o644}, strings.NewReader(f.text)); err != nil {
			return err
		}
	}
	return nil
}
