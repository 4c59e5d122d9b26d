package capability

// The walls that there are, whether or not a host can build them.
const (
	Gvisor      = "gvisor"
	Runsc       = "runsc"
	Docker      = "docker"
	Firecracker = "firecracker"
	QEMU        = "qemu"
	Host        = "host" // no wall at all
)

// Providers returns the names of all walls. The slice is the caller's.
func Providers() []string {
	return []string{Gvisor, Runsc, Docker, Firecracker, QEMU, Host}
}
