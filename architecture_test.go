package tendril_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// mayImport is the table of docs/architecture.md: which of our packages each
// package may import directly. Everything may import fault. A package without a
// row fails the test, so a new room is a decision.
var mayImport = map[string][]string{
	"fault":                   {},
	"spelling":                {},
	"ignore":                  {},
	"erofs":                   {},
	"display":                 {},
	"run":                     {},
	"destination":             {},
	"policy":                  {"spelling"},
	"probe":                   {},
	"cgroup":                  {},
	"rootfs":                  {},
	"hold":                    {},
	"rootfs/image":            {"erofs", "hold", "rootfs"},
	"rootfs/image/imagetest":  {"hold"},
	"strictyaml":              {"spelling"},
	"grant":                   {"budget", "capability", "destination", "pollen", "spelling", "strictyaml"},
	"budget":                  {"strictyaml"},
	"egress":                  {"destination"},
	"egress/model":            {"budget", "strictyaml"},
	"egress/authority":        {"destination"},
	"egress/proxy":            {"destination", "display", "egress/authority"},
	"credential":              {"destination", "spelling", "strictyaml"},
	"credential/leak":         {"credential"},
	"credential/attach":       {"credential", "credential/leak", "destination"},
	"agents":                  {"budget", "spelling"},
	"site":                    {"agents", "capability", "destination", "strictyaml"},
	"credential/source":       {"credential", "site"},
	"capability":              {"run", "spelling"},
	"pollen":                  {"spelling"},
	"ledger":                  {"pollen", "spelling"},
	"state":                   {"budget", "ledger", "pollen", "run"},
	"embedded":                {},
	"sprout":                  {"ignore"},
	"sprout/binary":           {"embedded"},
	"stoma":                   {},
	"stoma/binary":            {"embedded"},
	"stoma/guest":             {"stoma", "ignore"},
	"terrarium":               {"stoma", "probe", "erofs"},
	"terrarium/confine":       {"terrarium", "stoma", "cgroup"},
	"terrarium/host":          {"terrarium", "terrarium/confine", "stoma", "rootfs", "cgroup"},
	"terrarium/docker":        {"terrarium", "terrarium/confine", "terrarium/docker/registration", "stoma", "probe", "rootfs", "cgroup", "erofs"},
	"terrarium/runsc":         {"terrarium", "terrarium/confine", "terrarium/runsc/keeper", "stoma", "probe", "rootfs", "cgroup", "erofs"},
	"terrarium/runsc/keeper":  {},
	"terrarium/runsc/sandbox": {"terrarium/runsc/keeper"},
	"terrarium/terrariumtest": {"terrarium", "stoma", "probe", "erofs", "rootfs", "rootfs/image", "rootfs/image/imagetest"},
	"substrate":               {"erofs", "hold", "ignore"},
	"stem":                    {"agents", "budget", "capability", "credential", "credential/attach", "credential/source", "destination", "egress/authority", "egress/model", "egress/proxy", "erofs", "grant", "ledger", "policy", "pollen", "probe", "rootfs", "rootfs/image", "run", "site", "spelling", "state", "stoma", "substrate", "terrarium"},
	"api/wire":                {"capability", "run"},
	"api":                     {"api/wire", "capability", "run", "site"},
	"api/client":              {"api/wire", "capability", "site"},
	"cmd/sprout":              {"sprout"},
	"cmd/stoma":               {"stoma/guest", "probe"},
	"cmd/tendril":             {"api", "api/client", "capability", "credential/source", "display", "egress", "ledger", "policy", "pollen", "rootfs/image", "run", "site", "spelling", "sprout/binary", "stem", "stoma/binary", "terrarium", "terrarium/docker", "terrarium/docker/registration", "terrarium/host", "terrarium/microvm", "terrarium/microvm/guestimage", "terrarium/microvm/jail", "terrarium/runsc", "terrarium/runsc/sandbox"},
	"acceptance":              {},
	"corpora":                 {},
	"goroutines":              {},
	"bench":                   {},
	"bench/baseline":          {},
	"scripts/dockerd":         {"terrarium/docker/dockertest"},
	"scripts/summary":         {},
	"scripts/walls":           {},

	"terrarium/docker/dockertest":                   {"terrarium/docker/registration"},
	"terrarium/docker/registration":                 {},
	"terrarium/microvm":                             {"terrarium", "terrarium/confine", "terrarium/microvm/firecracker", "terrarium/microvm/guestimage", "terrarium/microvm/jail", "stoma", "probe", "rootfs", "cgroup", "erofs"},
	"terrarium/microvm/firecracker":                 {},
	"terrarium/microvm/firecracker/firecrackertest": {},
	"terrarium/microvm/guestimage":                  {},
	"terrarium/microvm/jail":                        {},
}

// linksOnly says which of our packages may import a heavy module directly, and
// why it must not spread.
var linksOnly = map[string]struct {
	packages []string
	why      string
}{
	"gvisor.dev/gvisor": {[]string{"terrarium/runsc/sandbox", "bench/baseline", "erofs", "substrate"},
		"gVisor compiles for minutes and belongs in re-executed processes only (erofs, substrate: its reader as an oracle in tests)"},
	"github.com/google/go-containerregistry": {[]string{"rootfs/image"}, "one package takes images apart"},
	"github.com/moby":                        {[]string{"terrarium/docker"}, "one package speaks with a Docker daemon, and one file of it knows the client"},
	"github.com/containerd/errdefs":          {[]string{"terrarium/docker"}, "what kinds of errors that client has"},
	"modernc.org/sqlite":                     {[]string{"state"}, "one package owns the database"},
	"filippo.io/age":                         {[]string{"credential/source"}, "one package reads secrets"},
	"github.com/alecthomas/kong":             {[]string{"cmd/tendril"}, "the command line is an edge"},
	"go.yaml.in/yaml":                        {[]string{"strictyaml", "rootfs", "terrarium/microvm/firecracker/firecrackertest"}, "one strict decoder reads the control plane's files (the others: in tests)"},
}

// pure packages decide or describe, and touch nothing.
var pure = []string{"fault", "spelling", "strictyaml", "grant", "budget", "agents", "ignore", "run", "pollen", "ledger", "capability", "policy", "destination", "credential", "credential/leak"}

type goPackage struct {
	ImportPath   string
	Imports      []string
	TestImports  []string
	XTestImports []string
	Doc          string
	GoFiles      []string
}

func ourPackages(t *testing.T) []goPackage {
	t.Helper()
	out, err := exec.Command("go", "list", "-json=ImportPath,Imports,TestImports,XTestImports,Doc,GoFiles", "./...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var list []goPackage
	decoder := json.NewDecoder(bytes.NewReader(out))
	for {
		var p goPackage
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			return list
		} else if err != nil {
			t.Fatal(err)
		}
		if p.ImportPath != "tendril" {
			list = append(list, p)
		}
	}
}

func TestImportsPointUp(t *testing.T) {
	for _, p := range ourPackages(t) {
		room := strings.TrimPrefix(p.ImportPath, "tendril/")
		allowed, known := mayImport[room]
		if !known {
			t.Errorf("package %s has no row in mayImport: decide where it stands, here and in docs/architecture.md", room)
			continue
		}
		for _, imported := range p.Imports {
			other, ours := strings.CutPrefix(imported, "tendril/")
			if ours && other != "fault" && !slices.Contains(allowed, other) {
				t.Errorf("%s imports %s, which the table does not allow", room, other)
			}
		}
	}
}

func TestHeavyModulesStayWhereTheyAre(t *testing.T) {
	for _, p := range ourPackages(t) {
		room := strings.TrimPrefix(p.ImportPath, "tendril/")
		for _, imported := range slices.Concat(p.Imports, p.TestImports, p.XTestImports) {
			for module, rule := range linksOnly {
				if strings.HasPrefix(imported, module) && !slices.Contains(rule.packages, room) {
					t.Errorf("%s imports %s: %s", room, imported, rule.why)
				}
			}
		}
	}
}

func TestPurePackagesTouchNothing(t *testing.T) {
	for _, p := range ourPackages(t) {
		room := strings.TrimPrefix(p.ImportPath, "tendril/")
		if !slices.Contains(pure, room) {
			continue
		}
		for _, imported := range p.Imports {
			switch imported {
			case "os", "os/exec", "net", "net/http", "database/sql", "syscall", "golang.org/x/sys/unix":
				t.Errorf("%s decides or describes and must not import %s", room, imported)
			}
		}
	}
}

// The Stoma is PID 1 beside hostile code: the less it is made of, the better.
func TestStomaIsSmall(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", "./cmd/stoma").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	for imported := range strings.FieldsSeq(string(out)) {
		if !strings.HasPrefix(imported, "tendril/") && !strings.HasPrefix(imported, "golang.org/x/sys/") {
			t.Errorf("cmd/stoma links %s: it is made of the standard library and golang.org/x/sys", imported)
		}
	}
	built, err := filepath.Glob("stoma/binary/built/stoma-*")
	if err != nil || len(built) == 0 {
		t.Skip("the Stoma is not built: run `make`")
	}
	for _, path := range built {
		if info, err := os.Stat(path); err != nil {
			t.Error(err)
		} else if info.Size() > 4_000_000 {
			t.Errorf("%s is %d bytes, above 4 MB", path, info.Size())
		}
	}
}

// The Sprout is an agent like any other: it knows nothing of what is around it.
func TestSproutIsSmall(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", "./cmd/sprout").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	known := []string{"tendril/cmd/sprout", "tendril/sprout", "tendril/ignore"}
	for imported := range strings.FieldsSeq(string(out)) {
		if !slices.Contains(known, imported) {
			t.Errorf("cmd/sprout links %s: it is made of the standard library and %q", imported, known)
		}
	}
	built, err := filepath.Glob("sprout/binary/built/sprout-*")
	if err != nil || len(built) == 0 {
		t.Skip("the Sprout is not built: run `make`")
	}
	for _, path := range built {
		if info, err := os.Stat(path); err != nil {
			t.Error(err)
		} else if info.Size() > 8_000_000 {
			t.Errorf("%s is %d bytes, above 8 MB", path, info.Size())
		}
	}
}

func TestEveryPackageSaysWhatItIsFor(t *testing.T) {
	for _, p := range ourPackages(t) {
		if len(p.GoFiles) > 0 && p.Doc == "" {
			t.Errorf("%s has no package comment", p.ImportPath)
		}
	}
}

// gVisor does not compile with a newer runtime-spec: LinuxPids.Limit became a
// pointer in v1.3.0.
func TestRuntimeSpecIsPinned(t *testing.T) {
	mod, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	if !regexp.MustCompile(`(?m)^\s*(require )?github.com/opencontainers/runtime-spec v1\.2\.1\b`).Match(mod) {
		t.Error("go.mod must require github.com/opencontainers/runtime-spec v1.2.1 while gVisor needs it")
	}
}
