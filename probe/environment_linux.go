package probe

import (
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

var environmentProbes = []Probe{
	{ID: "S01", Core: true, Dimension: "credentials", Seal: Environment, What: "the environment holds what a Terrarium sets and nothing else", Run: environment},
	{ID: "S02", Core: true, Dimension: "credentials", Seal: Environment, What: "no variable names a secret", Run: secretNames},
	{ID: "S03", Dimension: "credentials", Seal: Environment, What: "no agent's socket", Run: agents},
}

// expected are the variables that a Terrarium sets. Details name variables and never
// their values.
var expected = []string{
	"PATH", "HOME", "USER", "LOGNAME", "SHELL", "TERM", "COLORTERM", "LANG", "LANGUAGE", "TZ", "TMPDIR", "PWD", "OLDPWD", "SHLVL", "_", "HOSTNAME",
	"COLUMNS", "LINES", "NO_COLOR", "CI", "GIT_CONFIG_NOSYSTEM", "PAGER", "GIT_PAGER", "EDITOR",
}

func environment() Result {
	var foreign []string
	for _, e := range os.Environ() {
		name, _, _ := strings.Cut(e, "=")
		if slices.Contains(expected, name) || strings.HasPrefix(name, "LC_") || strings.HasPrefix(name, "TENDRIL_") || strings.HasPrefix(name, "XDG_") && name != "XDG_RUNTIME_DIR" {
			continue
		}
		foreign = append(foreign, name)
	}
	if len(foreign) > 0 {
		slices.Sort(foreign)
		return leak("variables besides those of a Terrarium: %s", strings.Join(foreign, " "))
	}
	return sealed("%d variables, all expected", len(os.Environ()))
}

func secretNames() Result {
	var found []string
	for _, e := range os.Environ() {
		name, value, _ := strings.Cut(e, "=")
		upper := strings.ToUpper(name)
		for _, word := range []string{"SECRET", "TOKEN", "PASSWORD", "PASSWD", "API_KEY", "APIKEY", "PRIVATE_KEY", "CREDENTIAL", "ACCESS_KEY", "COOKIE", "AUTH"} {
			if strings.Contains(upper, word) && value != "" {
				found = append(found, name)
				break
			}
		}
	}
	if len(found) > 0 {
		return leak("%s", strings.Join(found, " "))
	}
	return sealed("none")
}

func agents() Result {
	var t tried
	for _, name := range []string{"SSH_AUTH_SOCK", "SSH_AGENT_PID", "GPG_AGENT_INFO", "DBUS_SESSION_BUS_ADDRESS", "XDG_RUNTIME_DIR", "DISPLAY", "WAYLAND_DISPLAY", "DOCKER_HOST", "KUBECONFIG"} {
		if os.Getenv(name) != "" {
			t.leak(name + " is set")
		}
	}
	for _, path := range []string{"/run/user", "/run/dbus", "/tmp/.X11-unix"} {
		if exists(path) {
			t.leak(path)
		}
	}
	if names, err := list("/tmp"); err == nil {
		for _, n := range names {
			var st unix.Stat_t
			if strings.HasPrefix(n, "ssh-") && unix.Lstat("/tmp/"+n, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR {
				t.leak("/tmp/" + n)
			}
		}
	}
	return t.result("none")
}
