package guest

import "golang.org/x/sys/unix"

const auditArch = unix.AUDIT_ARCH_AARCH64

// deniedHere are further calls that this architecture has.
var deniedHere = []uint32{unix.SYS_KEXEC_FILE_LOAD}
