package registration

// Args are the settings of gVisor that the wall rests on, spelled out even where they
// are upstream's default today. The daemon gives them to its runtime.
var Args = []string{
	"--platform=systrap",
	"--network=none",
	"--host-uds=none",
	"--host-fifo=none",
	"--net-raw=false",
	"--character-device-policy=emulated-only",
	"--overlay2=none",
	"--allow-suid=false",
	"--allow-flag-override=false", // not from a container's annotations either
	"--oci-seccomp=true",          // closes namespaces of accounts to what runs inside
	"--in-sandbox-cgroup=v2",      // by which the Stoma learns that processes were refused
	"--directfs=false",            // the sandbox is no root of the host's then
	"--debug=false",
	"--profile=false",
	"--host-settings=ignore",
	"--file-access=exclusive",
	"--file-access-mounts=exclusive",
}
