// Package run holds the run record, its states and its events: what REST, the
// command line and `--json` print, and nothing else.
package run
