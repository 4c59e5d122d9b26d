//go:build linux

package rootfs

import (
	"fmt"
	"slices"
	"strings"
)

// Where the Stoma keeps what the Sprout meets only through /workspace, /tmp and its
// home. The directory is root's alone.
const (
	Private        = "/.tendril/private"
	PrivateBase    = Private + "/base"
	PrivateScratch = Private + "/scratch"
)

// Places are what a root file system needs, whatever else is in it.
type Places struct {
	Empty []Dir             // directories with nothing in them: what is mounted there, or the wall's own
	Dirs  []Dir             // directories that may hold something
	Links map[string]string // path inside -> target
	Files map[string][]byte // path inside -> content, mode 0644
	Trust []string          // files in which programs look for the certificates that they trust
	User  User
}

// ImagePlaces are the places of a root file system that is unpacked from an image. The
// files at Trust keep their content, and are empty where the image has none.
func ImagePlaces(user User) (Places, error) {
	if err := user.check(); err != nil {
		return Places{}, err
	}
	p := Places{
		Links: map[string]string{"/var/tmp": "../tmp", "/etc/mtab": "/proc/mounts"},
		Files: map[string][]byte{
			"/.tendril/stoma":     {},
			"/opt/tendril/sprout": {},
			"/etc/hostname":       []byte(Hostname + "\n"),
			"/etc/hosts":          []byte(hosts),
			"/etc/resolv.conf":    {},
			"/etc/nsswitch.conf":  []byte(nsswitch),
		},
		Trust: append(slices.Clone(trustStores), javaTrustStore),
		User:  user,
	}
	holds := []string{"/etc", "/home", "/root", "/run", "/usr", "/var"}
	for _, d := range skeletonDirs {
		switch {
		case slices.Contains(holds, d.Path):
			p.Dirs = append(p.Dirs, d)
		case d.Path == "/.tendril":
			d.Mode = 0o711 // the Sprout may enter it and execute the Stoma, as probes do
			p.Empty = append(p.Empty, d)
		default:
			p.Empty = append(p.Empty, d)
		}
	}
	p.Dirs = append(p.Dirs, Dir{"/opt", 0o755})
	p.Empty = append(p.Empty, Dir{Private, 0o700}, Dir{PrivateBase, 0o700}, Dir{PrivateScratch, 0o700},
		Dir{"/opt/tendril", 0o755}, Dir{user.Home, 0o755})
	return p, nil
}

// Passwd is a passwd(5) that has the account and, of the given one, everything but what
// has its name or number.
func (u User) Passwd(given []byte) []byte {
	return u.account(given, fmt.Sprint(u.UID), fmt.Sprintf("%s:x:%d:%d::%s:/bin/sh\n", u.Name, u.UID, u.GID, u.Home))
}

// Group is the same for group(5).
func (u User) Group(given []byte) []byte {
	return u.account(given, fmt.Sprint(u.GID), fmt.Sprintf("%s:x:%d:\n", u.Name, u.GID))
}

// account appends a line, without the lines that have its name or number. Others are
// kept as they are: whether they mean anything is the image's business.
func (u User) account(given []byte, number, line string) []byte {
	var out []byte
	for old := range strings.Lines(string(given)) {
		fields := strings.Split(strings.TrimSpace(old), ":")
		if fields[0] == u.Name || len(fields) > 2 && strings.TrimLeft(fields[2], "0") == number {
			continue
		}
		out = append(out, strings.TrimSuffix(old, "\n")...)
		out = append(out, '\n')
	}
	return append(out, line...)
}
