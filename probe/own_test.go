//go:build linux

package probe

import (
	"os"
	"testing"
)

// TestOwnKernelIsKnownByItsStart: a kernel is the Terrarium's own only where the host's is
// known and another one.
func TestOwnKernelIsKnownByItsStart(t *testing.T) {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		t.Skip(err)
	}
	if gvisor() {
		t.Skip("gVisor is known in another way")
	}
	for _, c := range []struct {
		what, host string
		want       Status
	}{
		{"of which nothing is known", "", Leak},
		{"that is this one", BootDigest(id), Leak},
		{"that is another one", BootDigest([]byte("another start\n")), Sealed},
	} {
		t.Setenv(HostBoot, c.host)
		if r := whichKernel(); r.Status != c.want {
			t.Errorf("with a host's kernel %s: %s", c.what, r)
		}
	}
}
