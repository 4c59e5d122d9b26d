//go:build linux

package docker

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/mount"
	"tendril/fault"
)

// readBackAsked refuses a container, before it runs, that is not what was asked for. Field by
// field: what the daemon's interface gains is met here, and refused until somebody says
// what it means.
func (b blueprint) readBackAsked(got container.InspectResponse) error {
	if got.HostConfig == nil || got.Config == nil {
		return fault.New(fault.BrokenBoundary, "the daemon does not say what the container is")
	}
	want := normalHost(*b.host)
	return errors.Join(
		compareFields("HostConfig", want, filledHost(want, normalHost(*got.HostConfig))),
		compareFields("Config", *b.config, filledConfig(*b.config, *got.Config)),
	)
}

// readBackMade refuses a container that has become something else than was asked for.
func (b blueprint) readBackMade(got container.InspectResponse) error {
	if got.State == nil || got.NetworkSettings == nil {
		return fault.New(fault.BrokenBoundary, "the daemon does not say what the container is")
	}
	if !got.State.Running || got.State.Pid <= 0 {
		return fault.New(fault.BrokenBoundary, "the container does not run: %s, exit status %d, %q", got.State.Status, got.State.ExitCode, got.State.Error)
	}
	if err := b.readBackAsked(got); err != nil {
		return err
	}
	if b.support.apparmor && (got.AppArmorProfile == "" || got.AppArmorProfile == "unconfined") {
		return differs("AppArmorProfile", "the daemon's default", got.AppArmorProfile)
	}
	if networks := slices.Sorted(maps.Keys(got.NetworkSettings.Networks)); !slices.Equal(networks, []string{"none"}) {
		return differs("Networks", []string{"none"}, networks)
	}
	return b.readBackMounts(got.Mounts)
}

const whatWasAsked = "the daemon made what was asked for"

func differs(what string, want, got any) error {
	return fault.New(fault.BrokenBoundary, "the container's %s is %.200v instead of %.200v", what, fmt.Sprint(got), fmt.Sprint(want)).WithRule(whatWasAsked)
}

// compareFields compares two structs of one type.
func compareFields(of string, want, got any) error {
	w, g := reflect.ValueOf(want), reflect.ValueOf(got)
	for i := range w.NumField() {
		field := w.Type().Field(i)
		if field.Anonymous {
			if err := compareFields(of, w.Field(i).Interface(), g.Field(i).Interface()); err != nil {
				return err
			}
			continue
		}
		if !equal(w.Field(i), g.Field(i)) {
			return differs(of+"."+field.Name, show(w.Field(i)), show(g.Field(i)))
		}
	}
	return nil
}

// equal takes nothing for an empty list, at any depth: the daemon makes one of the other.
func equal(want, got reflect.Value) bool {
	switch want.Kind() {
	case reflect.Slice:
		if want.Len() != got.Len() {
			return false
		}
		for i := range want.Len() {
			if !equal(want.Index(i), got.Index(i)) {
				return false
			}
		}
		return true
	case reflect.Map:
		return want.Len() == 0 && got.Len() == 0 || reflect.DeepEqual(want.Interface(), got.Interface())
	case reflect.Struct:
		for i := range want.NumField() {
			if !want.Type().Field(i).IsExported() {
				return reflect.DeepEqual(want.Interface(), got.Interface())
			}
			if !equal(want.Field(i), got.Field(i)) {
				return false
			}
		}
		return true
	case reflect.Pointer:
		if want.IsNil() || got.IsNil() {
			return want.IsNil() == got.IsNil()
		}
		return equal(want.Elem(), got.Elem())
	}
	return want.Interface() == got.Interface()
}

func show(v reflect.Value) any {
	if v.Kind() == reflect.Pointer && !v.IsNil() {
		return v.Elem().Interface()
	}
	return v.Interface()
}

// normalHost puts lists whose order means nothing into one.
func normalHost(h container.HostConfig) container.HostConfig {
	h.Mounts, h.Ulimits, h.SecurityOpt = slices.Clone(h.Mounts), slices.Clone(h.Ulimits), slices.Clone(h.SecurityOpt)
	slices.SortFunc(h.Mounts, func(a, b mount.Mount) int { return strings.Compare(a.Target, b.Target) })
	slices.SortFunc(h.Ulimits, func(a, b *container.Ulimit) int { return strings.Compare(a.Name, b.Name) })
	slices.Sort(h.SecurityOpt)
	return h
}

// filledHost takes back what a daemon puts where nothing was said, and what means the same.
func filledHost(want, got container.HostConfig) container.HostConfig {
	if got.OomKillDisable != nil && !*got.OomKillDisable {
		got.OomKillDisable = want.OomKillDisable
	}
	if got.MemorySwappiness != nil && *got.MemorySwappiness < 0 {
		got.MemorySwappiness = want.MemorySwappiness
	}
	if got.Isolation == "default" {
		got.Isolation = want.Isolation
	}
	got.ConsoleSize = want.ConsoleSize // there is no console
	return got
}

// filledConfig is the same for the other half.
func filledConfig(want, got container.Config) container.Config {
	if len(got.Env) == 1 && strings.HasPrefix(got.Env[0], "PATH=") {
		got.Env = want.Env // of PID 1, which looks nothing up
	}
	got.Labels = maps.Clone(got.Labels)
	delete(got.Labels, labelImage) // the image's
	return got
}

// readBackMounts wants the files and directories that are shown, and nothing else.
func (b blueprint) readBackMounts(got []container.MountPoint) error {
	shown := map[string]string{}
	for _, m := range b.host.Mounts {
		shown[m.Target] = m.Source
	}
	for _, m := range got {
		source, wanted := shown[m.Destination]
		_, scratch := b.host.Tmpfs[m.Destination]
		switch {
		case !wanted && scratch && m.Type == mount.TypeTmpfs:
			continue
		case !wanted || m.Type != mount.TypeBind || m.Source != source:
			return differs("mount "+m.Destination, source, fmt.Sprintf("%s %s%s", m.Type, m.Name, m.Source))
		case m.RW:
			return differs("mount "+m.Destination, "read-only", "writable")
		}
		delete(shown, m.Destination)
	}
	for target, source := range shown {
		return differs("mount "+target, source, "missing")
	}
	return nil
}
