//go:build linux

package guestimage

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"tendril/fault"
)

// The carriers of the Stoma, as the kernel's command line names them.
const (
	VirtioSerial = "virtio-serial"
	Vsock        = "vsock"
)

// need is a module that the guest has a use for.
type need struct {
	name     string
	carrier  string // "": with each
	optional bool   // without it the guest works as well
}

// needs are in the order in which they are loaded; each after what it depends on.
var needs = []need{
	{name: "crc32c_generic", optional: true}, // which some kernels' ext4 asks for by another name
	{name: "ext4"},
	{name: "erofs"},
	{name: "overlay"},
	{name: "virtio_blk"},
	{name: "virtio_rng", optional: true},
	{name: "virtio_console", carrier: VirtioSerial},
	{name: "vmw_vsock_virtio_transport", carrier: Vsock},
	{name: "virtio_mmio"}, // last: devices appear with it, when all drivers are there
}

// module is one that was picked.
type module struct {
	name    string
	carrier string
	content []byte // not compressed; with its signature, if it has one
}

// picker resolves the needs against a tree.
type picker struct {
	tree    tree
	paths   map[string]string // of modules, by name
	builtin map[string]bool   // nil: not known
	picked  []module
	state   map[string]int // 1: being picked, 2: picked
	release string
}

// pickModules returns what the guest needs, in the order of loading.
func pickModules(t tree, release string) ([]module, error) {
	p := &picker{tree: t, paths: map[string]string{}, state: map[string]int{}, release: release}
	for _, name := range sortedNames(t) {
		if base, ok := moduleName(name); ok {
			p.paths[base] = name
		}
		if path.Base(name) == "modules.builtin" {
			if err := p.readBuiltin(name); err != nil {
				return nil, err
			}
		}
	}
	for _, n := range needs {
		if err := p.pick(n.name, n.carrier, n.optional); err != nil {
			return nil, err
		}
	}
	return p.picked, nil
}

func sortedNames(t tree) []string {
	names := make([]string, 0, len(t.files))
	for name := range t.files {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// moduleName is the name of the module in a file, as the kernel has it: with "_" for
// each "-".
func moduleName(file string) (string, bool) {
	base := path.Base(file)
	for _, packed := range []string{".xz", ".zst", ".gz"} {
		base = strings.TrimSuffix(base, packed)
	}
	base, ok := strings.CutSuffix(base, ".ko")
	return strings.ReplaceAll(base, "-", "_"), ok && strings.HasPrefix(file, "lib/modules/")
}

func (p *picker) readBuiltin(name string) error {
	text, err := p.tree.files[name](maxText)
	if err != nil {
		return fault.New(fault.Invalid, "reading %s: %w", name, err)
	}
	p.builtin = map[string]bool{}
	for line := range strings.Lines(string(text)) {
		if base, ok := moduleName("lib/modules/" + strings.TrimSpace(line)); ok {
			p.builtin[base] = true
		}
	}
	return nil
}

// pick picks a module after those that it depends on.
func (p *picker) pick(name, carrier string, optional bool) error {
	if p.state[name] == 2 || p.builtin[name] {
		return nil
	}
	file, ok := p.paths[name]
	switch {
	case !ok && optional:
		return nil
	case !ok && p.builtin == nil:
		return fault.New(fault.Invalid, "there is no module %s, and no modules.builtin that says whether the kernel has it in itself", name).
			WithHint("name a directory as below /lib/modules, with all that belongs to it")
	case !ok:
		return fault.New(fault.Invalid, "the kernel %s has no %s, which the guest needs", p.release, name).
			WithHint("take a kernel for virtual machines, such as Debian's linux-image-cloud-amd64")
	case p.state[name] == 1:
		return fault.New(fault.Invalid, "the module %s depends on itself", name)
	}
	p.state[name] = 1
	content, info, err := p.read(file)
	if err != nil {
		return fault.New(fault.Invalid, "reading the module %s: %w", file, err)
	}
	for _, dependency := range info.depends {
		if err := p.pick(dependency, carrier, false); err != nil {
			return fmt.Errorf("%w, as %s depends on it", err, name)
		}
	}
	for _, dependency := range info.softly {
		if err := p.pick(dependency, carrier, true); err != nil {
			return err
		}
	}
	p.state[name] = 2
	p.picked = append(p.picked, module{name, carrier, content})
	return nil
}

func (p *picker) read(file string) ([]byte, moduleInfo, error) {
	content, err := p.tree.files[file](maxModule)
	if err != nil {
		return nil, moduleInfo{}, err
	}
	if !bytes.HasPrefix(content, []byte(elf.ELFMAG)) {
		if content, err = unpack(content, maxModule); err != nil {
			return nil, moduleInfo{}, err
		}
	}
	info, err := readModuleInfo(content)
	if err == nil && info.release != p.release {
		err = fmt.Errorf("it is for Linux %q, and the kernel is %q", info.release, p.release)
	}
	return content, info, err
}

// moduleInfo is what a module says about itself (include/linux/module.h, MODULE_INFO).
type moduleInfo struct {
	depends []string
	softly  []string // softdep: loaded before, if they are there
	release string
}

func readModuleInfo(content []byte) (moduleInfo, error) {
	file, err := elf.NewFile(bytes.NewReader(content))
	if err != nil {
		return moduleInfo{}, err
	}
	if file.Machine != elf.EM_X86_64 {
		return moduleInfo{}, fmt.Errorf("it is for %s", file.Machine)
	}
	section := file.Section(".modinfo")
	if section == nil {
		return moduleInfo{}, errors.New("it is not a kernel module")
	}
	text, err := readAll(section.Open(), maxText)
	if err != nil {
		return moduleInfo{}, err
	}
	var info moduleInfo
	for pair := range bytes.SplitSeq(text, []byte{0}) {
		key, value, _ := strings.Cut(string(pair), "=")
		switch key {
		case "depends":
			for name := range strings.SplitSeq(value, ",") {
				if name != "" {
					info.depends = append(info.depends, strings.ReplaceAll(name, "-", "_"))
				}
			}
		case "softdep":
			info.softly = append(info.softly, softBefore(value)...)
		case "vermagic":
			info.release, _, _ = strings.Cut(value, " ")
		}
	}
	return info, nil
}

// softBefore are the names after "pre:" (modprobe.d(5)).
func softBefore(value string) []string {
	var names []string
	before := false
	for word := range strings.FieldsSeq(value) {
		switch {
		case word == "pre:", word == "post:":
			before = word == "pre:"
		case before:
			names = append(names, strings.ReplaceAll(word, "-", "_"))
		}
	}
	return names
}
