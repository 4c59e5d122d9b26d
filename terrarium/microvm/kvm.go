//go:build linux

package microvm

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"tendril/erofs"
	"tendril/fault"
	"tendril/terrarium"
	"tendril/terrarium/confine"
)

// proof says whether a guest makes progress under KVM on this host. That the device is
// there says nothing: on some hosts a guest only burns time.
type proof struct {
	Key   string `json:"key"` // what it holds for: this start of the host, the guest, the emulator
	Works bool   `json:"works"`
	Why   string `json:"why,omitempty"` // not
}

// maxProof bounds the file, in bytes.
const maxProof = 64 << 10

// chooseKVM says whether the processor runs the guest, and if not, why.
func (p *provider) chooseKVM(ctx context.Context) (kvm bool, why string, err error) {
	err = p.kvmWorks(ctx)
	switch {
	case ctx.Err() != nil:
		return false, "", fmt.Errorf("opening the machine: %w", context.Cause(ctx))
	case err == nil || p.machine.needsKVM():
		return err == nil, "", err
	default:
		return false, ", because " + err.Error(), nil
	}
}

// kvmWorks returns nil when a guest was seen to start under KVM, since the host did.
func (p *provider) kvmWorks(ctx context.Context) error {
	switch err := kvmOpens(); {
	case errors.Is(err, os.ErrPermission):
		return fault.New(fault.Unavailable, "this account may not use KVM: %w", err).
			WithHint("add it to the group of %s, which is usually kvm, and log in again", kvmDevice())
	case err != nil:
		return fault.New(fault.Unavailable, "this host has no KVM: %w", err).
			WithHint("load the module kvm_intel or kvm_amd; a virtual machine has it only if its host gives it nested virtualization")
	}
	key, err := p.proofKey()
	if err != nil {
		return err
	}
	p.proving.Lock()
	defer p.proving.Unlock()
	path := filepath.Join(p.Guest, "kvm-"+p.machine.name()+".json")
	found, ok := readProof(path, key)
	if !ok {
		if found, err = p.prove(ctx, key); err != nil {
			return err
		}
		if err := writeProof(path, found); err != nil {
			return err
		}
	}
	if !found.Works {
		return fault.New(fault.Unavailable, "a guest does not start under this host's KVM: %s", found.Why).
			WithHint("take the provider qemu, which emulates a machine; a host of your own usually has a KVM that works")
	}
	return nil
}

func (p *provider) proofKey() (string, error) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fault.New(fault.Unavailable, "asking when the host started: %w", err)
	}
	guest, err := os.ReadFile(filepath.Join(p.Guest, "manifest.json"))
	if err != nil {
		return "", fault.New(fault.Unavailable, "reading the guest's manifest: %w", err)
	}
	return fmt.Sprintf("%s %x %s", strings.TrimSpace(string(boot)), sha256.Sum256(guest), p.machine.identity()), nil
}

func readProof(path, key string) (proof, bool) {
	var found proof
	data, err := os.ReadFile(path)
	if err != nil || len(data) > maxProof || json.Unmarshal(data, &found) != nil {
		return proof{}, false
	}
	return found, found.Key == key
}

func writeProof(path string, found proof) error {
	data, err := json.Marshal(found)
	if err != nil {
		return fmt.Errorf("recording whether KVM works: %w", err)
	}
	if err := confine.ReplaceFile(path, data); err != nil {
		return fault.New(fault.Unavailable, "recording whether KVM works: %w", err).WithHint("make the site's directory writable")
	}
	return nil
}

// prove starts the guest under KVM, over an empty root, and waits for its Stoma. An error
// says that it could not be tried, or that the caller gave up.
func (p *provider) prove(ctx context.Context, key string) (found proof, err error) {
	dir, err := os.MkdirTemp("", "tendril-kvm-")
	if err != nil {
		return proof{}, fault.New(fault.Unavailable, "trying KVM: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	root, base := filepath.Join(dir, "root"), filepath.Join(dir, "base")
	work := filepath.Join(dir, "run")
	if err := errors.Join(writeImage(root, fillBareRoot), writeImage(base, func(*erofs.Writer) error { return nil }), os.Mkdir(work, 0o700)); err != nil {
		return proof{}, fault.New(fault.Unavailable, "trying KVM: %w", err)
	}
	b, err := p.draw(terrarium.Spec{
		Run:       filepath.Base(dir),
		Rootfs:    terrarium.Rootfs{Image: &terrarium.Image{Path: root, Digest: "none"}},
		Workspace: terrarium.Workspace{Image: base, Dir: work},
		CPUs:      terrarium.Limit[float64]{Value: 1},
		Memory:    terrarium.Limit[int64]{Value: 2 * smallest.Memory},
		Disk:      terrarium.Limit[int64]{Value: smallest.Disk},
	})
	if err != nil {
		return proof{}, err
	}
	b.kvm = true
	t, failed := p.build(ctx, b)
	if ctx.Err() != nil {
		return proof{}, fmt.Errorf("trying KVM: %w", context.Cause(ctx))
	}
	if failed != nil {
		return proof{Key: key, Why: failed.Error()}, nil
	}
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	return proof{Key: key, Works: true}, t.Close(closing)
}
