//go:build keep

package keep

import (
	_ "github.com/alecthomas/kong"
	_ "github.com/google/go-cmp/cmp"
	_ "github.com/rogpeppe/go-internal/testscript"
	_ "go.yaml.in/yaml/v3"
	_ "golang.org/x/sys/unix"
	_ "golang.org/x/term"
	_ "modernc.org/sqlite"
	_ "pgregory.net/rapid"
	_ "gvisor.dev/gvisor/runsc/container"
	_ "gvisor.dev/gvisor/runsc/sandbox"
	_ "github.com/opencontainers/runtime-spec/specs-go"
)
