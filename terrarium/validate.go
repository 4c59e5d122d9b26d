package terrarium

import (
	"context"
	"errors"
	"fmt"
	"path"
	"reflect"
	"slices"
	"sort"
	"strings"

	"tendril/fault"
)

// Validated wraps a provider so that it sees no Spec which it does not declare
// to honour, and hands out no Terrarium whose boundary differs from what was
// asked. Everything opens Terrariums through it.
func Validated(p Provider) Provider { return validated{p} }

type validated struct{ Provider }

func (v validated) Open(ctx context.Context, spec Spec) (Terrarium, error) {
	if err := Validate(v.Name(), v.Capabilities(), spec); err != nil {
		return nil, err
	}
	t, err := v.Provider.Open(ctx, spec)
	if err != nil {
		return nil, err
	}
	err = Verify(v.Name(), v.Capabilities(), spec, t.Boundary())
	if err == nil {
		err = selfTest(ctx, v.Name(), v.Capabilities(), spec, t)
	}
	if err != nil {
		return nil, errors.Join(err, t.Close(context.WithoutCancel(ctx)))
	}
	return t, nil
}

// Recover makes a Terrarium over what an earlier one of spec's run left, see [Recoverer]. A
// provider whose Terrariums leave nothing is answered for with a fault.NotFound. There is no
// self-test: nothing is ever started in it.
func Recover(ctx context.Context, p Provider, spec Spec) (Terrarium, error) {
	if v, ok := p.(validated); ok {
		p = v.Provider
	}
	r, ok := p.(Recoverer)
	if !ok {
		return nil, fault.New(fault.NotFound, "a Terrarium of the provider %s leaves nothing when it ends", p.Name())
	}
	if err := Validate(p.Name(), p.Capabilities(), spec); err != nil {
		return nil, err
	}
	t, err := r.Recover(ctx, spec)
	if err != nil {
		return nil, err
	}
	if err := Verify(p.Name(), p.Capabilities(), spec, t.Boundary()); err != nil {
		return nil, errors.Join(err, t.Close(context.WithoutCancel(ctx)))
	}
	return t, nil
}

// Fields lists the fields of Spec by path, as Capabilities.Fields and Row.Field
// name them: "Rootfs.Host.Dirs", "Memory", ….
func Fields() []string {
	var fields []string
	collectFields(reflect.TypeFor[Spec](), "", func(path string) { fields = append(fields, path) })
	sort.Strings(fields)
	return fields
}

func collectFields(t reflect.Type, prefix string, found func(string)) {
	for f := range t.Fields() {
		path := prefix + f.Name
		inner := f.Type
		if inner.Kind() == reflect.Pointer {
			inner = inner.Elem()
		}
		if inner.Kind() == reflect.Struct && !isLeaf(inner) {
			collectFields(inner, path+".", found)
			continue
		}
		found(path)
	}
}

// isLeaf keeps a Limit and a User as one field each: their parts mean nothing
// alone.
func isLeaf(t reflect.Type) bool {
	return strings.HasPrefix(t.Name(), "Limit[") || t == reflect.TypeFor[User]()
}

// Validate refuses what no boundary can be made from, and every field that was
// set and that the provider does not declare.
func Validate(provider string, can Capabilities, spec Spec) error {
	if spec.Run == "" {
		return fault.New(fault.Invalid, "a Terrarium needs the id of its run")
	}
	if (spec.Rootfs.Host == nil) == (spec.Rootfs.Image == nil) {
		return fault.New(fault.Invalid, "a Terrarium needs exactly one root file system")
	}
	if spec.Rootfs.Image != nil && (spec.Rootfs.Image.Path == "" || spec.Rootfs.Image.Digest == "") {
		return fault.New(fault.Invalid, "an image as root file system needs its file and its digest")
	}
	for _, p := range spec.Rootfs.Programs {
		if !strings.HasPrefix(p.Target, programDir) || path.Clean(p.Target) != p.Target || !path.IsAbs(p.Source) {
			return fault.New(fault.Invalid, "a program of the Stem's own is shown below %s, not at %q", programDir, p.Target)
		}
	}
	if spec.Workspace.Image == "" || spec.Workspace.Dir == "" {
		return fault.New(fault.Invalid, "a Terrarium needs a workspace image and a directory of its own")
	}
	if spec.Network != NetworkNone {
		return fault.New(fault.Invalid, "a Terrarium has no network (%d)", spec.Network)
	}
	if (spec.User.UID == 0) != (spec.User.GID == 0) {
		return fault.New(fault.Invalid, "the user inside must not be uid 0 or gid 0")
	}
	for _, variable := range spec.Env {
		name, _, ok := strings.Cut(variable, "=")
		if !ok || name == "" || strings.ContainsRune(variable, 0) {
			return fault.New(fault.Invalid, "environment entry %q is not NAME=value", variable)
		}
	}
	if err := validateListeners(spec.Listeners); err != nil {
		return err
	}
	if err := ValidateLimits(spec); err != nil {
		return err
	}
	return undeclared(provider, can, spec)
}

const programDir = "/opt/tendril/"

func validateListeners(listeners []Listener) error {
	names, ports := map[string]bool{}, map[uint16]bool{}
	for _, l := range listeners {
		if l.Name == "" || strings.ContainsAny(l.Name, " =,\x00") || l.Port == 0 || l.Serve == nil || names[l.Name] || ports[l.Port] {
			return fault.New(fault.Invalid, "a listener needs a name and a port of its own, and somebody who serves it: %q", l.String())
		}
		names[l.Name], ports[l.Port] = true, true
	}
	return nil
}

// ValidateLimits refuses limits that no boundary could mean.
func ValidateLimits(spec Spec) error {
	for name, negative := range map[LimitName]bool{
		LimitCPU: !(spec.CPUs.Value >= 0), LimitMemory: spec.Memory.Value < 0, LimitDisk: spec.Disk.Value < 0,
		LimitOutput: spec.Output.Value < 0, LimitPids: spec.Pids.Value < 0, LimitWall: spec.Wall.Value < 0, LimitIdle: spec.Idle.Value < 0,
	} {
		if negative {
			return fault.New(fault.Invalid, "the %s limit is below zero", name)
		}
	}
	return nil
}

func undeclared(provider string, can Capabilities, spec Spec) error {
	if spec.Rootfs.Host != nil && !can.Keeps("Rootfs.Host.Dirs") {
		return fault.New(fault.Unavailable, "the provider %s cannot show this host's toolchain (Rootfs.Host.Dirs)", provider).
			WithHint("name an image: `--image`")
	}
	v := reflect.ValueOf(spec)
	for _, path := range Fields() {
		field, ok := fieldAt(v, path)
		if !ok || field.IsZero() {
			continue
		}
		if !can.Keeps(path) {
			return fault.New(fault.Unavailable, "the provider %s cannot honour %s", provider, path).
				WithHint("leave it out, or choose a provider that can: `tendril terrarium list`")
		}
	}
	return nil
}

func fieldAt(v reflect.Value, path string) (reflect.Value, bool) {
	for name := range strings.SplitSeq(path, ".") {
		if v.Kind() == reflect.Pointer {
			if v.IsNil() {
				return reflect.Value{}, false
			}
			v = v.Elem()
		}
		v = v.FieldByName(name)
	}
	return v, true
}

// Verify refuses a boundary that is not what was asked: a field without a row,
// a row that was applied differently, a required limit that nobody keeps.
func Verify(provider string, can Capabilities, spec Spec, rows []Row) error {
	seen := map[string]bool{}
	for _, row := range rows {
		if !slices.Contains(Fields(), row.Field) {
			return fault.New(fault.BrokenBoundary, "the provider %s says what it applied for %q, which nobody can ask for", provider, row.Field)
		}
		seen[row.Field] = true
		asked, required := askedLimit(spec, row.Field)
		switch {
		case asked != "" && row.Asked != asked:
			return fault.New(fault.BrokenBoundary, "the provider %s took %s as %q where %q was asked", provider, row.Field, row.Asked, asked).
				WithRule("asked = applied")
		case row.Asked != row.Applied && !can.admitsToNothing(row):
			return fault.New(fault.BrokenBoundary, "the provider %s applied %s as %q where %q was asked", provider, row.Field, row.Applied, row.Asked).
				WithRule("asked = applied")
		case required && row.Enforced == NotKept:
			return fault.New(fault.Unavailable, "this host can neither enforce nor sample the %s limit that was asked for: %s", row.Field, row.Note).
				WithRule("a limit that was asked for is kept or refused")
		}
	}
	for _, field := range Fields() {
		if !seen[field] {
			return fault.New(fault.BrokenBoundary, "the provider %s does not say what it applied for %s", provider, field)
		}
	}
	return nil
}

// admitsToNothing reports whether a row says that nothing was done about a field, as only
// a wall that is none may: it runs on the host, seals nothing, and never said that it keeps
// the field. Then the truth is what the row has to say. Every other wall does what is asked,
// the zero value of each field included, or opens nothing.
func (c Capabilities) admitsToNothing(row Row) bool {
	return c.Runtime == RuntimeHost && len(c.Seals) == 0 && !c.Keeps(row.Field) && row.Enforced == NotKept
}

// askedLimit is what spec asks for a limit, as a row puts it, and whether somebody has
// to have it. It is "" for the provider's default and for a field that is no limit.
func askedLimit(spec Spec, field string) (asked string, required bool) {
	v, ok := fieldAt(reflect.ValueOf(spec), field)
	if !ok || !strings.HasPrefix(v.Type().Name(), "Limit[") {
		return "", false
	}
	value := v.FieldByName("Value")
	if !value.IsZero() {
		asked = fmt.Sprint(value.Interface())
	}
	return asked, v.FieldByName("Required").Bool()
}
