package main

// terrariumSetupCommands make this host ready for walls that need more than tendril.
type terrariumSetupCommands struct {
	Gvisor  setupGvisorCommand  `cmd:"" name:"gvisor" help:"Make tendril the runtime by which a Docker daemon starts gVisor."`
	Microvm setupMicrovmCommand `cmd:"" help:"Make the guest of the micro-VMs: a kernel, and the modules that it needs."`
}

type setupGvisorCommand struct {
	Write  bool   `help:"Do it. Without this, what would be done is printed."`
	Undo   bool   `help:"Take it back instead."`
	Config string `type:"path" placeholder:"FILE" help:"The daemon's configuration (default: /etc/docker/daemon.json)."`
	Link   string `type:"path" placeholder:"PATH" help:"The name by which the daemon calls tendril (default: /usr/local/lib/tendril/runsc)."`
}

// Help is what the command's help says beyond its one line.
func (*setupGvisorCommand) Help() string {
	return "Everything else in the daemon's configuration stays as it is. The daemon is not restarted: that ends its containers. " +
		"What the daemon is to run must not be writable by anybody but root, in any part of its path."
}

type setupMicrovmCommand struct {
	KernelPackage string `type:"path" xor:"kernel" placeholder:"FILE.deb" help:"Take the kernel and its modules from this package of a distribution."`
	Kernel        string `type:"path" xor:"kernel" and:"own" placeholder:"FILE" help:"Take this kernel."`
	Modules       string `type:"path" and:"own" placeholder:"DIR" help:"Its modules, as below /lib/modules."`
	Digest        string `placeholder:"sha256:HEX" help:"Take the package or kernel only if it has this digest."`
	Download      bool   `xor:"kernel" help:"Let apt fetch the newest of its kernels for clouds, and take that."`
	Remove        bool   `xor:"kernel" help:"Remove the guest that was made."`
}

// Help is what the command's help says beyond its one line.
func (*setupMicrovmCommand) Help() string {
	return "Debian's kernel for clouds is small and does: --download fetches it. By hand, apt-cache depends linux-image-cloud-amd64 " +
		"names the package, and apt-get download of that gives the file. Nothing is installed, nothing is mounted, and root is not needed. " +
		"The guest is kept in the state directory; --remove undoes it."
}
