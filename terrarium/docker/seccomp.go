//go:build linux

package docker

import (
	"encoding/json"
	"sync"

	"github.com/moby/profiles/seccomp"
)

// filter is the daemon's own default list of system calls, spelled out: whatever the
// daemon was configured to use by default, this is what a container gets.
var filter = sync.OnceValues(func() (string, error) {
	text, err := json.Marshal(seccomp.DefaultProfile())
	return string(text), err
})
