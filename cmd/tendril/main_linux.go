package main

import (
	"os"

	"tendril/terrarium/runsc/sandbox"
)

func init() {
	if sandbox.Invoked(os.Args[0]) {
		sandbox.Main()
	}
}
