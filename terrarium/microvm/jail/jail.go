// Package jail starts one program with as little of the host as it can do with: the
// process that emulates a machine. It runs in processes that `tendril` starts as a
// re-execution of itself, which become that program.
//
// What it promises: the program has mount, network, IPC, host name, control group and
// process namespaces of its own (and, for an ordinary user, a user namespace); it sees
// the files that its order lists, read-only, and nothing else of the host; it has no
// capability and no way to one, an environment without a variable, and no descriptor but
// those that its order lists; it dies with the thread that started it.
//
// What it does not protect against: what the program's own account may do with system
// calls. The program's own filter of those is the next wall.
package jail

// Name is the process's argv[0] until it becomes the program.
const Name = "tendril-jail"

// OrderFD is where the order is read. Its other end has to stay open until the program
// runs: a Stem that is gone needs no program.
const OrderFD = 3

// DeviceDir is where devices are.
const DeviceDir = "/dev"

// FirstFD is the first of the descriptors that the program keeps.
const FirstFD = 4

// MaxOrder is the longest order, in bytes.
const MaxOrder = 64 << 10

// Order says what to become.
type Order struct {
	// Root is an empty directory of the host, on which the program's root is made. Without
	// it the program makes a jail of its own: it keeps what this process may do, and Shown
	// is bound at Targets of the host, in a mount namespace that only the program sees.
	Root    string
	Program string   // the program, by the path that it has on the host and in the jail
	Args    []string // with argv[0]
	Shown   []Shown
	Devices []string // device nodes of the host, in DeviceDir, that are there too; for an account of its own as nodes that it owns
	Links   map[string]string
	UID     int   // the program's account, where there is no user namespace; its group has the same number
	MaxFile int64 // bytes that a file can have which it writes
	FDs     int   // how many descriptors from FirstFD on the program keeps
}

// Shown is a file or directory of the host that the program sees.
type Shown struct {
	Source, Target string
	Writable       bool
}
