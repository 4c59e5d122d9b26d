//go:build linux

package guestimage

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"tendril/fault"
)

// kernel is an uncompressed kernel.
type kernel struct {
	elf     []byte
	release string
	pvh     bool // it says how to start it without a boot loader, as QEMU does
}

// readKernel takes an ELF file, or what a distribution ships: an image that unpacks
// itself.
func readKernel(name string, data []byte) (kernel, error) {
	if !bytes.HasPrefix(data, []byte(elf.ELFMAG)) {
		var err error
		if data, err = unwrapImage(data); err != nil {
			return kernel{}, fault.New(fault.Invalid, "reading the kernel %s: %w", name, err).
				WithHint("name a kernel for x86-64 as a distribution ships it, or its uncompressed vmlinux")
		}
	}
	k := kernel{elf: data}
	file, err := elf.NewFile(bytes.NewReader(data))
	if err != nil {
		return kernel{}, fault.New(fault.Invalid, "reading the kernel %s: %w", name, err)
	}
	if file.Machine != elf.EM_X86_64 || file.Type != elf.ET_EXEC && file.Type != elf.ET_DYN {
		return kernel{}, fault.New(fault.Invalid, "the kernel %s is a %s for %s", name, file.Type, file.Machine).
			WithHint("name a kernel for x86-64")
	}
	if k.release = releaseOf(data); k.release == "" {
		return kernel{}, fault.New(fault.Invalid, "the file %s does not say which Linux it is", name)
	}
	k.pvh = hasEntryNote(file)
	return k, nil
}

// Offsets in the first sectors of an image that unpacks itself
// (Documentation/arch/x86/boot.rst).
const (
	setupSectors  = 0x1f1
	headerMagic   = 0x202
	payloadOffset = 0x248
	payloadLength = 0x24c
	headerEnd     = 0x250
	sector        = 512
)

// unwrapImage returns the kernel that is packed into an image.
func unwrapImage(image []byte) ([]byte, error) {
	if len(image) < headerEnd || string(image[headerMagic:headerMagic+4]) != "HdrS" {
		return nil, errors.New("it is neither an ELF file nor a Linux image for x86")
	}
	sectors := int(image[setupSectors])
	if sectors == 0 {
		sectors = 4
	}
	start := uint64(sectors+1)*sector + uint64(binary.LittleEndian.Uint32(image[payloadOffset:]))
	length := uint64(binary.LittleEndian.Uint32(image[payloadLength:]))
	if length < 8 || start+length > uint64(len(image)) {
		return nil, fmt.Errorf("its payload of %d bytes at %d is not in the file", length, start)
	}
	payload := image[start : start+length]
	// The four bytes at the end say how long the kernel is, but for gzip they are its own.
	size := int64(binary.LittleEndian.Uint32(payload[len(payload)-4:]))
	if !bytes.HasPrefix(payload, []byte("\x1f\x8b")) {
		payload = payload[:len(payload)-4]
	}
	if size > maxKernel {
		return nil, fmt.Errorf("%w: it says that it has %d bytes unpacked", errTooLarge, size)
	}
	data, err := unpack(payload, size)
	if errors.Is(err, errNotPacked) {
		return nil, fmt.Errorf("what is in it begins with % x: %w", payload[:4], err)
	}
	if err == nil && int64(len(data)) != size {
		err = fmt.Errorf("it unpacks to %d bytes and says %d", len(data), size)
	}
	return data, err
}

// releaseOf finds the banner that every kernel holds (init/version.c).
func releaseOf(data []byte) string {
	const banner = "Linux version "
	for {
		i := bytes.Index(data, []byte(banner))
		if i < 0 {
			return ""
		}
		data = data[i+len(banner):]
		word, _, ok := strings.Cut(string(data[:min(len(data), 80)]), " ")
		// The format string of the same banner has a % here.
		if ok && word != "" && word[0] >= '0' && word[0] <= '9' && printable(word) {
			return word
		}
	}
}

func printable(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return r <= ' ' || r > '~' }) < 0
}

// hasEntryNote looks for the note that names the kernel's 32-bit entry
// (XEN_ELFNOTE_PHYS32_ENTRY, include/xen/interface/elfnote.h).
func hasEntryNote(file *elf.File) bool {
	const phys32Entry = 18
	for _, p := range file.Progs {
		if p.Type != elf.PT_NOTE || p.Filesz > maxText {
			continue
		}
		notes, err := readAll(p.Open(), maxText)
		if err != nil {
			continue
		}
		for len(notes) >= 12 {
			nameLength, descLength := file.ByteOrder.Uint32(notes), file.ByteOrder.Uint32(notes[4:])
			kind := file.ByteOrder.Uint32(notes[8:])
			if nameLength == 4 && string(notes[12:min(len(notes), 15)]) == "Xen" && kind == phys32Entry {
				return true
			}
			next := 12 + (uint64(nameLength)+3)&^3 + (uint64(descLength)+3)&^3
			if next > uint64(len(notes)) {
				break
			}
			notes = notes[next:]
		}
	}
	return false
}
