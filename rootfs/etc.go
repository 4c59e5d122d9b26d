//go:build linux

package rootfs

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// etcMounts are directories of /etc that the programs in /usr reach through links
// or fixed paths and that hold public data of packages. Each is shown under its own
// path when it is a world-readable directory of root's; where it is a link
// (ssl/certs on Fedora), what it leads to is shown.
var etcMounts = []string{
	"/etc/alternatives",              // awk, cc, vi, java: links of update-alternatives
	"/etc/ca-certificates/extracted", // Arch: what ssl/certs links to
	"/etc/fonts",                     // fontconfig has no other place
	"/etc/pki/ca-trust/extracted",    // Fedora: what pki/tls/certs links to
	"/etc/pki/tls/certs",
	"/etc/ssl/certs", // never ssl/private
}

// etcCopies are small public files, copied so that each costs no mount.
var etcCopies = []string{
	"/etc/debian_version",
	"/etc/ld.so.cache",
	"/etc/ld.so.conf", // the linker resolves libraries of libraries with it
	"/etc/mime.types",
	"/etc/protocols",
	"/etc/services",
	"/etc/timezone",
}

// maxEtcFile bounds what is copied from one file of /etc, in bytes. The largest in
// practice is ld.so.cache with a few hundred KiB.
const maxEtcFile = 4 << 20

// nsswitch answers every lookup from files: nothing inside can be resolved by DNS,
// LDAP or a daemon of the host.
const nsswitch = `passwd: files
group: files
shadow: files
hosts: files
networks: files
protocols: files
services: files
rpc: files
ethers: files
netgroup: files
`

const hosts = "127.0.0.1 localhost " + Hostname + "\n::1 localhost " + Hostname + "\n"

// opensslConf replaces the host's, which may name engines, tokens and PINs. It is
// what `openssl req` and the library need to start.
const opensslConf = `openssl_conf = openssl_init

[openssl_init]
ssl_conf = ssl_sect

[ssl_sect]
system_default = system_default_sect

[system_default_sect]
MinProtocol = TLSv1.2

[req]
distinguished_name = req_distinguished_name
string_mask = utf8only

[req_distinguished_name]
`

func addEtc(v *View, dirs map[string]fs.FileMode, user User) {
	v.Files["/etc/group"] = fmt.Appendf(nil, "root:x:0:\n%s:x:%d:\nnogroup:x:65534:\n", user.Name, user.GID)
	v.Files["/etc/passwd"] = fmt.Appendf(nil, "root:x:0:0:root:/root:/usr/sbin/nologin\n%s:x:%d:%d::%s:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
		user.Name, user.UID, user.GID, user.Home)
	v.Files["/etc/hostname"] = []byte(Hostname + "\n")
	v.Files["/etc/hosts"] = []byte(hosts)
	v.Files["/etc/nsswitch.conf"] = []byte(nsswitch)
	v.Files["/etc/resolv.conf"] = nil
	addDir(dirs, "/etc/ssl", 0o755)
	v.Files["/etc/ssl/openssl.cnf"] = []byte(opensslConf)
	v.Links["/etc/mtab"] = "/proc/mounts"

	if target, err := os.Readlink("/etc/os-release"); err == nil {
		v.Links["/etc/os-release"] = target
	} else {
		addCopy(v, "/etc/os-release")
	}
	for _, path := range etcCopies {
		addCopy(v, path)
	}
	addLinkerDirs(v, dirs)
	addTimeZone(v)

	for _, path := range etcMounts {
		addEtcMount(v, dirs, path)
	}
	// Debian's Java is split between /usr/lib/jvm and /etc/java-N-openjdk and does
	// not start without the latter.
	entries, _ := os.ReadDir("/etc")
	for _, e := range entries {
		if name := e.Name(); e.IsDir() && strings.HasPrefix(name, "java-") && strings.HasSuffix(name, "-openjdk") {
			addEtcMount(v, dirs, "/etc/"+name)
		}
	}
}

// addEtcMount shows path, if it is a public directory of root's.
func addEtcMount(v *View, dirs map[string]fs.FileMode, path string) {
	source, err := filepath.EvalSymlinks(path)
	if err != nil {
		return // absent, as most of them are on any one system
	}
	var st unix.Stat_t
	if unix.Lstat(source, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return
	}
	if st.Uid != 0 || st.Mode&0o022 != 0 || st.Mode&0o005 != 0o005 {
		v.Notes = append(v.Notes, fmt.Sprintf("%s is not shown: it is not a world-readable directory that root alone can write", path))
		return
	}
	if !within(source, "/etc") && !within(source, "/usr") {
		v.Notes = append(v.Notes, fmt.Sprintf("%s is not shown: it leads to %s", path, source))
		return
	}
	v.Mounts = append(v.Mounts, Mount{source, path})
	addDir(dirs, path, 0o755)
	if filepath.Base(path) == "certs" {
		hideKeys(v, source, path)
	}
}

// hideKeys masks files with a private key that somebody put beside the certificates,
// as many how-tos advise for a certificate of one's own.
func hideKeys(v *View, source, path string) {
	entries, err := os.ReadDir(source)
	if err != nil {
		return
	}
	for _, e := range entries {
		if !e.Type().IsRegular() {
			continue
		}
		name := e.Name()
		_, secret := secretByName(name)
		if !secret {
			data, ok := readPublic(source + "/" + name)
			secret = ok && holdsPrivateKey(data)
		}
		if secret {
			v.Masks = append(v.Masks, Mask{Path: path + "/" + name})
			v.Notes = append(v.Notes, fmt.Sprintf("%s/%s is hidden: it holds a private key", path, name))
		}
	}
}

// addCopy copies a file of /etc that everybody on the host can read.
func addCopy(v *View, path string) {
	if data, ok := readPublic(path); ok {
		v.Files[path] = data
	}
}

// readPublic reads a world-readable regular file of at most maxEtcFile bytes. It
// opens nothing else: no FIFO can block it and no device can answer.
func readPublic(path string) ([]byte, bool) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, false
	}
	f := os.NewFile(uintptr(fd), path)
	defer f.Close()
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFREG || st.Mode&0o004 == 0 || st.Size > maxEtcFile {
		return nil, false
	}
	data := make([]byte, st.Size)
	if _, err := io.ReadFull(f, data); err != nil {
		return nil, false
	}
	return data, true
}

func addLinkerDirs(v *View, dirs map[string]fs.FileMode) {
	entries, err := os.ReadDir("/etc/ld.so.conf.d")
	if err != nil {
		return
	}
	addDir(dirs, "/etc/ld.so.conf.d", 0o755)
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".conf") {
			addCopy(v, "/etc/ld.so.conf.d/"+e.Name())
		}
	}
}

func addTimeZone(v *View) {
	target, err := os.Readlink("/etc/localtime")
	switch {
	case err != nil:
		addCopy(v, "/etc/localtime")
	case strings.Contains(target, "/usr/share/zoneinfo/"):
		v.Links["/etc/localtime"] = target
	default: // led somewhere that is not shown
		addCopy(v, "/etc/localtime")
	}
}
