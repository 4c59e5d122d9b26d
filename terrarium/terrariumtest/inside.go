//go:build linux

package terrariumtest

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"tendril/probe"
	"tendril/stoma"
	"tendril/terrarium"
)

// testInside: what a command meets, and how it ends.
func testInside(t *testing.T, g *ground) {
	b := g.open(t, nil)
	t.Run("environment", func(t *testing.T) {
		given := []string{"PATH=/usr/bin:/bin", "ODD=a b\tc=d\x01\xff", "EMPTY="}
		e := b.finish(t, b.start(t, stoma.ExecRequest{Argv: []string{"env", "-0"}, Env: given}), "")
		got := strings.Split(strings.TrimSuffix(e.stdout, "\x00"), "\x00")
		slices.Sort(got)
		slices.Sort(given)
		if !e.ok() || !slices.Equal(got, given) {
			t.Errorf("the environment was %q and is %q", given, got)
		}
	})
	t.Run("user", func(t *testing.T) {
		want := b.row(t, "User").Applied
		if got := strings.TrimSpace(b.sh(t, `echo $(id -u):$(id -g)`)); got != want {
			t.Errorf("uid and gid are %s, want %s", got, want)
		}
		if !g.keeps("User") {
			return // the account is some other, and so are its groups
		}
		if asked := b.spec.User.String(); want != asked {
			t.Errorf("the row says %s, and %s was asked for", want, asked)
		}
		if got := strings.TrimSpace(b.sh(t, `id -G`)); got != fmt.Sprint(b.spec.User.GID) {
			t.Errorf("the groups are %s", got)
		}
	})
	t.Run("writable", func(t *testing.T) {
		for _, dir := range []string{"/workspace", "/tmp", "/home/sprout"} {
			if e := b.run(t, "touch", dir+"/made"); !e.ok() {
				t.Errorf("no file can be made in %s: %s", dir, e)
			}
		}
	})
	t.Run("read-only-root", func(t *testing.T) {
		g.sealed(t, probe.RootReadonly)
		for _, dir := range []string{"/", "/usr", "/usr/bin", "/etc", "/var", "/home", "/.tendril"} {
			if e := b.run(t, "touch", dir+"/planted"); e.ok() {
				t.Errorf("a file was made in %s", dir)
			}
		}
	})
	t.Run("streams", func(t *testing.T) {
		e := b.finish(t, b.start(t, stoma.ExecRequest{Argv: []string{"sh", "-c", `cat; echo aside >&2; exit 7`}}), "one\x00two\xff")
		if e.stdout != "one\x00two\xff" || e.stderr != "aside\n" || e.exit.Code == nil || *e.exit.Code != 7 {
			t.Errorf("a command that copies its input, says aside and exits with 7 %s", e)
		}
	})
	t.Run("signals", func(t *testing.T) {
		e := b.run(t, "sh", "-c", `kill -KILL $$`)
		if e.exit.Signal == nil || *e.exit.Signal != int(unix.SIGKILL) {
			t.Errorf("a command that kills itself %s", e)
		}
		p := b.start(t, stoma.ExecRequest{Argv: []string{"sh", "-c", `echo ready; exec sleep 1000`}})
		expect(t, p, "ready\n")
		if err := p.Signal(b.within(t), int(unix.SIGTERM)); err != nil {
			t.Fatal(err)
		}
		if e := b.finish(t, p, ""); e.exit.Signal == nil || *e.exit.Signal != int(unix.SIGTERM) {
			t.Errorf("a command that was sent SIGTERM %s", e)
		}
	})
	// The C library starts both with clone3, which filters refuse: what they have to answer
	// is that there is no such call.
	t.Run("the-c-library-starts-processes-and-threads", func(t *testing.T) {
		if got := b.sh(t, `awk 'BEGIN { system("echo started") }'`); got != "started\n" {
			t.Errorf("system(3) said %q", got)
		}
		if e := b.run(t, "git", "grep", "--no-index", "--threads=2", "-l", "commit", "--", baseName); e.stdout != baseName+"\n" {
			t.Errorf("a program with threads %s", e)
		}
	})
	t.Run("pid1", func(t *testing.T) { testPID1(t, g, b) })
}

// testPID1: the guest half of the Stoma is out of the Sprout's reach.
func testPID1(t *testing.T, g *ground, b *box) {
	g.sealed(t, probe.PID1)
	for what, script := range map[string]string{
		"killed":            `kill -KILL 1`,
		"stopped":           `kill -STOP 1`,
		"written to":        `echo forged > /proc/1/fd/1`,
		"read from":         `head -c 1 < /proc/1/fd/0`,
		"listed":            `ls /proc/1/fd`,
		"made a likely end": `echo 1000 > /proc/1/oom_score_adj`,
	} {
		if e := b.run(t, "sh", "-c", script); e.ok() {
			t.Errorf("PID 1 can be %s: %s", what, e)
		}
	}
	for _, id := range []string{"P01", "P02", "P03", "K10"} {
		e := b.run(t, terrarium.StomaInside, "probe", id)
		if r, err := probe.Parse([]byte(e.stdout)); err != nil || r.Status != probe.Sealed {
			t.Errorf("%s: %+v, %v", id, r, err)
		}
	}
	b.run(t, "sh", "-c", `kill -KILL -- -1`) // everything that it may
	if _, err := b.Stoma().Stat(b.within(t)); err != nil {
		t.Errorf("after that the Stoma does not answer: %v", err)
	}
}

// testToolchain: a listed directory is there, read-only, and its neighbours are not.
func testToolchain(t *testing.T, g *ground) {
	g.needs(t, "Rootfs.Host.Dirs")
	top, err := "", errors.New("none was tried")
	home, _ := os.UserHomeDir() // without one it is another place that is not there
	for _, place := range []string{os.TempDir(), "/opt", home} {
		if strings.HasPrefix(place, "/tmp") {
			continue // it is made new in every Terrarium
		}
		if top, err = os.MkdirTemp(place, "tendril-toolchain-"); err == nil {
			break
		}
	}
	if err != nil {
		g.lacking = append(g.lacking, "toolchain")
		t.Skipf("no place outside of /tmp to show a directory from: set TMPDIR (%v)", err)
	}
	t.Cleanup(func() { os.RemoveAll(top) })
	for name, content := range map[string]string{"shown/tool": "admitted\n", "hidden/key": "a neighbour's\n"} {
		path := filepath.Join(top, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o666); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, 0o666); err != nil { // whatever the umask
			t.Fatal(err)
		}
	}
	if err := os.Chmod(top, 0o755); err != nil {
		t.Fatal(err)
	}
	shown, hidden := filepath.Join(top, "shown"), filepath.Join(top, "hidden")
	b := g.open(t, func(s *terrarium.Spec) { s.Rootfs.Host.Dirs = []string{shown} })
	if got := b.sh(t, "cat "+shown+"/tool"); got != "admitted\n" {
		t.Errorf("the listed directory's file holds %q inside", got)
	}
	for seal, attempts := range map[string]map[string]string{
		probe.RootReadonly: {
			"writing to a listed directory's file": "echo x >> " + shown + "/tool",
			"making a file in a listed directory":  "touch " + shown + "/planted",
		},
		probe.HostFiles: {
			"reading its neighbour": "cat " + hidden + "/key",
			"seeing its neighbour":  "ls -d " + hidden,
		},
	} {
		t.Run(seal, func(t *testing.T) {
			g.sealed(t, seal)
			for what, script := range attempts {
				if e := b.run(t, "sh", "-c", script); e.ok() {
					t.Errorf("%s succeeded", what)
				}
			}
		})
	}
	if data, err := os.ReadFile(shown + "/tool"); err != nil || string(data) != "admitted\n" {
		t.Errorf("the listed file is %q now (%v)", data, err)
	}
}

// testWorkspace: the base is there to be changed, and changes stay apart from it.
func testWorkspace(t *testing.T, g *ground) {
	b := g.open(t, nil)
	image, err := os.ReadFile(b.spec.Workspace.Image)
	if err != nil {
		t.Fatal(err)
	}
	before := sha256.Sum256(image)
	if got := b.sh(t, "cat "+baseName); got != baseContent {
		t.Errorf("the base's file holds %q inside", got)
	}
	b.sh(t, `echo changed > `+baseName+`; mkdir d; echo new > d/new`)
	records := b.collected(t)
	if len(records) != 3 || records[baseName] != "changed\n" || records["d/new"] != "new\n" {
		t.Errorf("collected %q", records)
	}
	if image, err = os.ReadFile(b.spec.Workspace.Image); err != nil || sha256.Sum256(image) != before {
		t.Errorf("the base image has changed (%v)", err)
	}
	b.sh(t, "rm "+baseName)
	if _, deleted := b.collected(t)[baseName]; !deleted {
		t.Error("the deletion of a file of the base was not collected")
	}
}
