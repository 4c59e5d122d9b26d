package probe

// groups are all probes by seal.
var groups = [][]Probe{
	networkProbes, fileProbes, rootProbes, descriptorProbes, environmentProbes, userProbes,
	capabilityProbes, pid1Probes, deviceProbes, kernelProbes, processProbes, limitProbes,
}
