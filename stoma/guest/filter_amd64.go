package guest

import "golang.org/x/sys/unix"

const auditArch = unix.AUDIT_ARCH_X86_64

// deniedHere are further calls that this architecture has.
var deniedHere = []uint32{
	unix.SYS_CREATE_MODULE, unix.SYS_GET_KERNEL_SYMS, unix.SYS_IOPERM, unix.SYS_IOPL, unix.SYS_KEXEC_FILE_LOAD,
	unix.SYS_MODIFY_LDT, unix.SYS_QUERY_MODULE, unix.SYS_SYSFS, unix.SYS_USELIB, unix.SYS_USTAT, unix.SYS__SYSCTL,
}
