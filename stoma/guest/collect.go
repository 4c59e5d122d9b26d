//go:build linux

package guest

import (
	"errors"

	"tendril/stoma"
)

var errNoWorkspace = errors.New("this Terrarium has no overlay workspace")

func (sv *server) collect(st *stoma.Stream) error         { return errNoWorkspace }
func (sv *server) put(dir string, st *stoma.Stream) error { return errNoWorkspace }
