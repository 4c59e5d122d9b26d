//go:build linux

package site

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"tendril/fault"
)

func env(pairs ...string) func(string) string {
	return func(name string) string {
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i] == name {
				return pairs[i+1]
			}
		}
		return ""
	}
}

func TestFind(t *testing.T) {
	for _, test := range []struct {
		name string
		env  []string
		want Dirs
	}{
		{"a home", []string{"HOME", "/home/ann"},
			Dirs{Config: "/home/ann/.config/tendril", State: "/home/ann/.local/state/tendril", Runtime: "/home/ann/.local/state/tendril/runtime"}},
		{"the places of a desktop", []string{"HOME", "/home/ann", "XDG_CONFIG_HOME", "/c", "XDG_STATE_HOME", "/s/", "XDG_RUNTIME_DIR", "/run/user/7"},
			Dirs{Config: "/c/tendril", State: "/s/tendril", Runtime: "/run/user/7/tendril"}},
		{"our own places", []string{"TENDRIL_CONFIG_DIR", "/c", "TENDRIL_STATE_DIR", "/a/../s", "XDG_STATE_HOME", "/x"},
			Dirs{Config: "/c", State: "/s", Runtime: "/s/runtime"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := Find(env(test.env...), 7)
			if err != nil {
				t.Fatal(err)
			}
			test.want.uid = 7
			if got != test.want {
				t.Errorf("got  %+v\nwant %+v", got, test.want)
			}
		})
	}
}

func TestFindRefuses(t *testing.T) {
	for _, test := range []struct {
		env  []string
		want string
	}{
		{nil, "neither TENDRIL_CONFIG_DIR nor XDG_CONFIG_HOME nor HOME is set"},
		{[]string{"HOME", "ann"}, `HOME is not an absolute path: "ann"`},
		{[]string{"HOME", "/h", "XDG_CONFIG_HOME", "c"}, `XDG_CONFIG_HOME is not an absolute path: "c"`},
		{[]string{"HOME", "/h", "XDG_STATE_HOME", "./s"}, `XDG_STATE_HOME is not an absolute path: "./s"`},
		{[]string{"HOME", "/h", "XDG_RUNTIME_DIR", "~"}, `XDG_RUNTIME_DIR is not an absolute path: "~"`},
		{[]string{"HOME", "/h", "TENDRIL_STATE_DIR", "s"}, `TENDRIL_STATE_DIR is not an absolute path: "s"`},
	} {
		_, err := Find(env(test.env...), 7)
		if !fault.Is(err, fault.Invalid) || err.Error() != test.want {
			t.Errorf("%v: got %v, want %s", test.env, err, test.want)
		}
	}
}

// own returns a directory without symbolic links that is this account's.
func own(t *testing.T) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func dirsIn(t *testing.T, home string) Dirs {
	t.Helper()
	dirs, err := Find(env("HOME", home), os.Geteuid())
	if err != nil {
		t.Fatal(err)
	}
	return dirs
}

func TestPrepareMakesPrivateDirectories(t *testing.T) {
	home := own(t)
	old := unix.Umask(0) // the modes are ours, not the umask's
	defer unix.Umask(old)
	dirs := dirsIn(t, home)
	for range 2 { // the second time they are there
		got, err := dirs.Prepare()
		if err != nil {
			t.Fatal(err)
		}
		if got != dirs {
			t.Errorf("Prepare = %+v, want %+v", got, dirs)
		}
	}
	for _, dir := range []string{dirs.State, dirs.Runtime, filepath.Join(home, ".local")} {
		info, err := os.Stat(dir)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm() != 0o700 {
			t.Errorf("%s has mode %04o", dir, info.Mode().Perm())
		}
	}
	if _, err := os.Stat(dirs.Config); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the configuration directory is the Botanist's to make: %v", err)
	}
}

func TestPrepareRefuses(t *testing.T) {
	mkdir := func(t *testing.T, path string, mode os.FileMode) {
		t.Helper()
		if err := os.MkdirAll(path, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	chown := func(t *testing.T, path string, uid int) {
		t.Helper()
		if os.Geteuid() != 0 {
			t.Skip("only root can give a directory away")
		}
		if err := os.Lchown(path, uid, -1); err != nil {
			t.Fatal(err)
		}
	}
	for _, test := range []struct {
		name   string
		break_ func(t *testing.T, home string)
		want   string // HOME stands for the home
		hint   string
	}{
		{"a state directory that the group can write", func(t *testing.T, home string) {
			mkdir(t, home+"/.local/state/tendril", 0o770)
		}, "other accounts can write HOME/.local/state/tendril (mode 0770)", "chmod go-w HOME/.local/state/tendril"},
		{"a state directory that others can read", func(t *testing.T, home string) {
			mkdir(t, home+"/.local/state/tendril", 0o755)
		}, "HOME/.local/state/tendril is open to other accounts (mode 0755)", "chmod 0700 HOME/.local/state/tendril"},
		{"a sticky state directory", func(t *testing.T, home string) {
			mkdir(t, home+"/.local/state/tendril", 0o777|os.ModeSticky)
		}, "HOME/.local/state/tendril is open to other accounts (mode 0777)", "chmod 0700 HOME/.local/state/tendril"},
		{"a parent that others can write", func(t *testing.T, home string) {
			mkdir(t, home+"/.local", 0o777)
		}, "other accounts can write HOME/.local (mode 0777)", "chmod go-w HOME/.local"},
		{"a home that others can write", func(t *testing.T, home string) {
			mkdir(t, home, 0o777)
		}, "other accounts can write HOME (mode 0777)", "chmod go-w HOME"},
		{"a configuration directory that others can write", func(t *testing.T, home string) {
			mkdir(t, home+"/.config/tendril", 0o757)
		}, "other accounts can write HOME/.config/tendril (mode 0757)", "chmod go-w HOME/.config/tendril"},
		{"a state directory that is a link", func(t *testing.T, home string) {
			mkdir(t, home+"/elsewhere", 0o700)
			mkdir(t, home+"/.local/state", 0o700)
			os.Symlink(home+"/elsewhere", home+"/.local/state/tendril")
		}, "HOME/.local/state/tendril is a symbolic link", "put the directory itself there"},
		{"a link that leads to where others can write", func(t *testing.T, home string) {
			mkdir(t, home+"/elsewhere", 0o777)
			os.Symlink("elsewhere", home+"/.local")
		}, "other accounts can write HOME/elsewhere (mode 0777)", "chmod go-w HOME/elsewhere"},
		{"links in a circle", func(t *testing.T, home string) {
			os.Symlink(".local", home+"/.local")
		}, "HOME/.local/state/tendril leads through more than 40 symbolic links", "name another directory with TENDRIL_STATE_DIR"},
		{"a file in the way", func(t *testing.T, home string) {
			os.WriteFile(home+"/.local", nil, 0o600)
		}, "HOME/.local is not a directory", "move it away"},
		{"a file in its place", func(t *testing.T, home string) {
			mkdir(t, home+"/.local/state", 0o700)
			os.WriteFile(home+"/.local/state/tendril", nil, 0o600)
		}, "HOME/.local/state/tendril is not a directory", "move it away"},
		{"a state directory of another account", func(t *testing.T, home string) {
			mkdir(t, home+"/.local/state/tendril", 0o700)
			chown(t, home+"/.local/state/tendril", 4242)
		}, "HOME/.local/state/tendril belongs to uid 4242, which could change what is in it", "name another directory with TENDRIL_STATE_DIR"},
		{"a parent of another account", func(t *testing.T, home string) {
			mkdir(t, home+"/.local", 0o755)
			chown(t, home+"/.local", 4242)
		}, "HOME/.local belongs to uid 4242, which could change what is in it", "name another directory with TENDRIL_STATE_DIR"},
		{"a link of another account", func(t *testing.T, home string) {
			mkdir(t, home+"/elsewhere", 0o700)
			os.Symlink("elsewhere", home+"/.local")
			chown(t, home+"/.local", 4242)
		}, "HOME/.local belongs to uid 4242, which could change what is in it", "name another directory with TENDRIL_STATE_DIR"},
		{"a configuration directory of another account", func(t *testing.T, home string) {
			mkdir(t, home+"/.config/tendril", 0o700)
			chown(t, home+"/.config/tendril", 4242)
		}, "HOME/.config/tendril belongs to uid 4242, which could change what is in it", "name another directory with TENDRIL_CONFIG_DIR"},
	} {
		t.Run(test.name, func(t *testing.T) {
			home := own(t)
			test.break_(t, home)
			_, err := dirsIn(t, home).Prepare()
			var f *fault.Error
			if !errors.As(err, &f) || f.Kind != fault.Unavailable {
				t.Fatalf("err = %v", err)
			}
			if got, want := f.Detail, strings.ReplaceAll(test.want, "HOME", home); got != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
			if got, want := f.Hint, strings.ReplaceAll(test.hint, "HOME", home); got != want {
				t.Errorf("hint %s\nwant %s", got, want)
			}
		})
	}
}

func TestPrepareFollowsASafeLink(t *testing.T) {
	home := own(t)
	if err := os.Mkdir(home+"/disk", 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("./disk/../disk", home+"/.local"); err != nil {
		t.Fatal(err)
	}
	got, err := dirsIn(t, home).Prepare()
	if err != nil {
		t.Fatal(err)
	}
	if want := home + "/disk/state/tendril"; got.State != want {
		t.Errorf("the state is in %s, want %s", got.State, want)
	}
}

// TestPrepareMakesNothingWhereOthersCanWrite: what is refused was not first
// made.
func TestPrepareMakesNothingWhereOthersCanWrite(t *testing.T) {
	home := own(t)
	if err := os.Chmod(home, 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := dirsIn(t, home).Prepare(); err == nil {
		t.Fatal("no error")
	}
	if entries, _ := os.ReadDir(home); len(entries) != 0 {
		t.Errorf("%s was made", entries[0].Name())
	}
}

// TestPrepareOnAReadOnlyFileSystem runs itself once more in namespaces of its
// own, in which it may mount.
func TestPrepareOnAReadOnlyFileSystem(t *testing.T) {
	if dir := os.Getenv("READ_ONLY_DIR"); dir != "" {
		prepareReadOnly(t, dir)
		return
	}
	if os.Geteuid() != 0 {
		t.Skip("only root can mount a file system that is read-only for its owner")
	}
	again := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	again.Env = append(os.Environ(), "READ_ONLY_DIR="+own(t))
	again.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: 0, Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: 0, Size: 1}},
	}
	out, err := again.CombinedOutput()
	if errors.Is(err, syscall.EPERM) {
		t.Skip("this host gives no user namespaces")
	}
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

func prepareReadOnly(t *testing.T, dir string) {
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "mode=700"); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(dir+"/there", 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ state, detail, hint string }{
		{dir + "/there", dir + "/there cannot be written: read-only file system", "mount its file system read-write"},
		{dir + "/absent", "create " + dir + "/absent: mkdir " + dir + "/absent: read-only file system", "TENDRIL_STATE_DIR"},
	} {
		dirs, err := Find(env("TENDRIL_STATE_DIR", test.state, "TENDRIL_CONFIG_DIR", "/nonexistent"), 0)
		if err != nil {
			t.Fatal(err)
		}
		_, err = dirs.Prepare()
		var f *fault.Error
		if !errors.As(err, &f) || f.Kind != fault.Unavailable {
			t.Fatalf("err = %v", err)
		}
		if f.Detail != test.detail || !strings.Contains(f.Hint, test.hint) {
			t.Errorf("got  %s (%s)\nwant %s (… %s …)", f.Detail, f.Hint, test.detail, test.hint)
		}
	}
}

func TestLoad(t *testing.T) {
	dirs := dirsIn(t, own(t))
	if config, err := dirs.Load(); err != nil || config.Version != 0 {
		t.Errorf("without a file: %+v, %v", config, err)
	}
	if err := os.MkdirAll(dirs.Config, 0o700); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dirs.Config, FileName)
	if err := os.WriteFile(file, []byte(whole), 0o644); err != nil {
		t.Fatal(err)
	}
	config, err := dirs.Load()
	if err != nil || len(config.Toolchain) != 2 {
		t.Errorf("Load = %+v, %v", config, err)
	}
	if err := os.WriteFile(file, []byte("version: 1\ntoolchian: []\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := dirs.Load(); err == nil || err.Error() != file+`:2: unknown key "toolchian" (did you mean "toolchain"?)` {
		t.Errorf("err = %v", err)
	}
}

// notTheBotanists are files that hold what the file of a site holds, and must not be
// believed. FILE stands for the file.
var notTheBotanists = []struct {
	name  string
	place func(t *testing.T, file, content string)
	want  string
}{
	{"others can write it", func(t *testing.T, file, content string) {
		os.WriteFile(file, []byte(content), 0o600)
		os.Chmod(file, 0o606)
	}, "other accounts can write FILE (mode 0606)"},
	{"its group can write it", func(t *testing.T, file, content string) {
		os.WriteFile(file, []byte(content), 0o600)
		os.Chmod(file, 0o660)
	}, "other accounts can write FILE (mode 0660)"},
	{"it is a link", func(t *testing.T, file, content string) {
		os.WriteFile(file+".real", []byte(content), 0o600)
		os.Symlink(file+".real", file)
	}, "FILE is a symbolic link"},
	{"it is a directory", func(t *testing.T, file, content string) {
		os.Mkdir(file, 0o700)
	}, "FILE is not a regular file"},
	{"it is a FIFO", func(t *testing.T, file, content string) {
		if err := unix.Mkfifo(file, 0o600); err != nil {
			t.Skip(err)
		}
	}, "FILE is not a regular file"},
	{"it is another's", func(t *testing.T, file, content string) {
		if os.Geteuid() != 0 {
			t.Skip("only root can give a file away")
		}
		os.WriteFile(file, []byte(content), 0o600)
		os.Chown(file, 4242, -1)
	}, "FILE belongs to uid 4242, and this is uid 0"},
}

func TestLoadRefusesAFileThatIsNotTheBotanists(t *testing.T) {
	for _, test := range notTheBotanists {
		t.Run(test.name, func(t *testing.T) {
			dirs := dirsIn(t, own(t))
			if err := os.MkdirAll(dirs.Config, 0o700); err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(dirs.Config, FileName)
			test.place(t, file, whole)
			_, err := dirs.Load()
			if !fault.Is(err, fault.Unavailable) {
				t.Fatalf("err = %v", err)
			}
			if got, want := err.Error(), strings.ReplaceAll(test.want, "FILE", file); got != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
		})
	}
}
