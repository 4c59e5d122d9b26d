package main

// terrariumSetupCommands make this host ready for walls that need more than tendril.
type terrariumSetupCommands struct {
	Microvm setupMicrovmCommand `cmd:"" help:"Make the guest of the micro-VMs: a kernel, and the modules that it needs."`
}

type setupMicrovmCommand struct {
	KernelPackage string `type:"path" xor:"kernel" placeholder:"FILE.deb" help:"Take the kernel and its modules from this package of a distribution."`
	Kernel        string `type:"path" xor:"kernel" and:"own" placeholder:"FILE" help:"Take this kernel."`
	Modules       string `type:"path" and:"own" placeholder:"DIR" help:"Its modules, as below /lib/modules."`
	Digest        string `placeholder:"sha256:HEX" help:"Take the package or kernel only if it has this digest."`
	Remove        bool   `xor:"kernel" help:"Remove the guest that was made."`
}

// Help is what the command's help says beyond its one line.
func (*setupMicrovmCommand) Help() string {
	return "Debian's kernel for clouds is small and does: apt-get download linux-image-cloud-amd64 names the package of the kernel, " +
		"and apt-get download of that gives the file. Nothing is installed, nothing is mounted, and root is not needed. " +
		"The guest is kept in the state directory; --remove undoes it."
}
