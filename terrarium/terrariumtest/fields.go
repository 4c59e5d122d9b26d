//go:build linux

package terrariumtest

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"tendril/fault"
	"tendril/stoma"
	"tendril/terrarium"
)

// testFields: the wall says of every field whether it honours it, and what it does
// not is refused by name.
func testFields(t *testing.T, g *ground) {
	declared := g.bare.Capabilities().Fields
	for _, field := range terrarium.Fields() {
		if by, ok := declared[field]; !ok {
			t.Errorf("the provider does not say whether it honours %s", field)
		} else if !slices.Contains(enforcements, by) {
			t.Errorf("%s is declared as kept by %q", field, by)
		}
		if name, ok := provenBy[field]; !ok || !hasProperty(name) {
			t.Errorf("no property of this suite holds a wall to %s", field)
		}
		if !g.keeps(field) {
			testRefused(t, g, field)
		}
	}
	for field := range declared {
		if !slices.Contains(terrarium.Fields(), field) {
			t.Errorf("the provider declares %s, which is no field of Spec", field)
		}
	}
}

// enforcements are in the order of their strength.
var enforcements = []terrarium.Enforcement{terrarium.NotKept, terrarium.Sampled, terrarium.ByGuest, terrarium.ByHost}

func weaker(a, b terrarium.Enforcement) bool {
	return slices.Index(enforcements, a) < slices.Index(enforcements, b)
}

// testRefused: a Spec that differs from one that the wall takes in this field alone is
// refused because of the field.
func testRefused(t *testing.T, g *ground, field string) {
	spec := g.spec(t)
	ask(t, &spec, field)
	opened, err := g.provider().Open(g.within(t), spec)
	switch {
	case err == nil:
		t.Errorf("%s is not declared, was asked for and got a Terrarium", field)
		if err := opened.Close(g.within(t)); err != nil {
			t.Error(err)
		}
	case field == "Network" && fault.Is(err, fault.Invalid): // nobody can ask for one
	case !fault.Is(err, fault.Unavailable), !strings.Contains(err.Error(), named(field)):
		t.Errorf("%s is not declared and was refused with %v", field, err)
	}
}

// named is how a refusal may name a field at least. The parts of an image are asked for
// together.
func named(field string) string {
	if strings.HasPrefix(field, "Rootfs.Image.") {
		return "Rootfs.Image."
	}
	return field
}

// ask sets a field to some value that a wall could honour.
func ask(t *testing.T, spec *terrarium.Spec, field string) {
	t.Helper()
	switch field {
	case "Rootfs.Image.Path", "Rootfs.Image.Digest":
		spec.Rootfs = terrarium.Rootfs{Image: &terrarium.Image{Path: "/x", Digest: "sha256:" + strings.Repeat("0", 64)}}
	case "Rootfs.Host.Dirs":
		spec.Rootfs = terrarium.Rootfs{Host: &terrarium.HostView{Dirs: []string{"/usr"}}}
	case "Rootfs.Programs":
		spec.Rootfs.Programs = []terrarium.Program{{Source: "/usr/bin/env", Target: terrarium.SproutInside}}
	case "Listeners":
		spec.Listeners = []terrarium.Listener{{Name: "x", Port: 1, Serve: func(*stoma.Stream) {}}}
	case "Env":
		spec.Env = []string{"X=x"}
	case "User":
		spec.User = terrarium.DefaultUser
	default:
		v := reflect.ValueOf(spec).Elem()
		for name := range strings.SplitSeq(field, ".") {
			v = v.FieldByName(name)
		}
		fill(t, v)
	}
}

// fill gives a field some value that is not zero.
func fill(t *testing.T, v reflect.Value) {
	t.Helper()
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(true)
	case reflect.String:
		v.SetString("x")
	case reflect.Int, reflect.Int64:
		v.SetInt(1)
	case reflect.Uint8:
		v.SetUint(1)
	case reflect.Float64:
		v.SetFloat(1)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
	case reflect.Struct:
		fill(t, v.Field(0))
	default:
		t.Fatalf("a field of kind %v: teach the suite what its values are", v.Kind())
	}
}

// testBoundary: one row a field, and nobody weaker keeps it than was declared
// without a note that says why.
func testBoundary(t *testing.T, g *ground) {
	b := g.open(t, func(s *terrarium.Spec) {
		if g.keeps("Memory") {
			s.Memory = terrarium.Limit[int64]{Value: 2 * g.options.Memory}
		}
		if g.keeps("Pids") {
			s.Pids = terrarium.Limit[int]{Value: 99, Required: true}
		}
	})
	rows := map[string]terrarium.Row{}
	for _, row := range b.Boundary() {
		if _, twice := rows[row.Field]; twice {
			t.Errorf("%s has two rows", row.Field)
		}
		rows[row.Field] = row
	}
	for _, field := range terrarium.Fields() {
		row, ok := rows[field]
		switch {
		case !ok:
			t.Errorf("%s has no row", field)
			continue
		case !slices.Contains([]string{terrarium.DimensionFilesystem, terrarium.DimensionNetwork, terrarium.DimensionProcess, terrarium.DimensionResources}, row.Dimension):
			t.Errorf("%s is of the dimension %q", field, row.Dimension)
		case !slices.Contains([]terrarium.How{terrarium.Probed, terrarium.Inspected, terrarium.Constructed}, row.How):
			t.Errorf("%s was learnt by %q", field, row.How)
		case weaker(row.Enforced, g.bare.Capabilities().Fields[field]) && row.Note == "":
			t.Errorf("%s is declared as kept by %q, is kept by %q, and no note says why", field, g.bare.Capabilities().Fields[field], row.Enforced)
		}
		delete(rows, field)
	}
	for field := range rows {
		t.Errorf("a row for %s, which is no field of Spec", field)
	}
	for _, row := range b.Boundary() {
		if want := map[string]string{"Memory": fmt.Sprint(b.spec.Memory.Value), "Pids": fmt.Sprint(b.spec.Pids.Value)}[row.Field]; g.keeps(row.Field) && want != "" && row.Asked != want {
			t.Errorf("%s was asked for as %s, and its row says %q", row.Field, want, row.Asked)
		}
		if row.Required != (row.Field == "Pids" && b.spec.Pids.Required) {
			t.Errorf("the row of %s says required: %v", row.Field, row.Required)
		}
	}
}
