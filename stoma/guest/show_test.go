//go:build linux

package guest_test

import (
	"fmt"

	"tendril/stoma"
)

// show writes an exit for a person.
func show(e stoma.Exit) string {
	s := "?"
	switch {
	case e.Code != nil:
		s = fmt.Sprintf("code %d", *e.Code)
	case e.Signal != nil:
		s = fmt.Sprintf("signal %d", *e.Signal)
	}
	if e.Killed != "" {
		s += ", killed for " + e.Killed
	}
	return s
}
