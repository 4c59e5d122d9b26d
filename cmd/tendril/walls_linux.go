package main

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"

	"tendril/capability"
	"tendril/fault"
	"tendril/site"
	"tendril/spelling"
	"tendril/terrarium"
	"tendril/terrarium/docker"
	"tendril/terrarium/host"
	"tendril/terrarium/microvm"
	"tendril/terrarium/runsc"
)

// parts are what walls are made of on this host.
type parts struct {
	site    site.Dirs
	program string // this program, which re-executes as a sandbox
	stoma   string // the guest half of the Stoma
}

// wall makes one wall by its name; without a name it is Docker, which most hosts have. It
// says nothing of whether the wall can be built here.
func (p parts) wall(name string) (terrarium.Provider, error) {
	daemon := docker.Config{Host: dockerHost(os.Getenv), Stoma: p.stoma, Site: siteID(p.site), Store: p.site.State}
	machine := microvm.Config{Program: p.program, Stoma: p.stoma, Guest: guestDir(p.site)}
	switch cmp.Or(name, capability.Docker) {
	case capability.Gvisor:
		return docker.NewGVisor(daemon), nil
	case capability.Runsc:
		return runsc.New(runsc.Config{Program: p.program, Stoma: p.stoma}), nil
	case capability.Docker:
		return docker.New(daemon), nil
	case capability.Firecracker:
		return microvm.Firecracker(machine), nil
	case capability.QEMU:
		return microvm.QEMU(machine), nil
	case capability.Host:
		return host.New(host.Config{Stoma: p.stoma, Allowed: os.Getenv(host.AllowedBy) == "true"}), nil
	}
	f := fault.New(fault.NotFound, "there is no provider %q", name)
	if nearest, ok := spelling.Nearest(name, capability.Providers()); ok {
		return nil, f.WithHint("did you mean %s?", nearest)
	}
	return nil, f
}

// walls makes all of them, the strongest first.
func (p parts) walls() ([]terrarium.Provider, error) {
	var all []terrarium.Provider
	for _, name := range capability.Providers() {
		wall, err := p.wall(name)
		if err != nil {
			return nil, err
		}
		all = append(all, wall)
	}
	return all, nil
}

// siteID tells this site's Terrariums from those of another on the same host.
func siteID(s site.Dirs) string {
	return fmt.Sprintf("%x", sha256.Sum256([]byte(s.State)))[:16]
}

// dockerHost is where a Docker daemon is asked: what the environment says, or else the
// socket of the host's daemon, or of this account's own where only that is there.
func dockerHost(getenv func(string) string) string {
	if host := cmp.Or(getenv("TENDRIL_DOCKER_HOST"), getenv("DOCKER_HOST")); host != "" {
		return host
	}
	const system = "/run/docker.sock"
	if own := getenv("XDG_RUNTIME_DIR"); own != "" {
		own = filepath.Join(own, "docker.sock")
		if _, err := os.Stat(system); err != nil {
			if _, err := os.Stat(own); err == nil {
				return "unix://" + own
			}
		}
	}
	return "unix://" + system
}
