package stoma

import (
	"encoding/json"
	"fmt"
)

// Look is what a process inside sees of what it is in: facts that a wall compares with what
// it asked for, before anything of the Sprout runs.
type Look struct {
	Status     map[string]string `json:"status"`     // of /proc/self/status
	Namespaces map[string]string `json:"namespaces"` // by kind, as links in /proc/self/ns are
	Mounts     string            `json:"mounts"`     // /proc/self/mountinfo
	Kernel     string            `json:"kernel"`     // /proc/version
	Interfaces []string          `json:"interfaces"` // of the network
	Resources  map[string]uint64 `json:"resources"`  // hard limits of this process: core, nofile, nproc
	Places     map[string]Place  `json:"places"`     // by the path that was asked for
}

// Place is what is at a path.
type Place struct {
	Missing bool   `json:"missing,omitempty"`
	Device  uint64 `json:"device,omitempty"`
	Inode   uint64 `json:"inode,omitempty"`
	Size    int64  `json:"size,omitempty"` // of its file system, in bytes
}

// MaxLook bounds the text of a look, in bytes.
const MaxLook = 4 << 20

// ParseLook reads what `stoma look` prints.
func ParseLook(text []byte) (Look, error) {
	var l Look
	if len(text) > MaxLook {
		return l, violation("a look that is too long")
	}
	if err := json.Unmarshal(text, &l); err != nil {
		return l, violation(fmt.Sprintf("a look that is none: %v", err))
	}
	return l, nil
}
