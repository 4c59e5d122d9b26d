//go:build linux

package image_test

import (
	"archive/tar"
	"io/fs"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tendril/fault"
	"tendril/rootfs/image"
)

// TestLayers: what is in the tree after layers were laid over each other. A value is a
// file's content, "-> target" of a link, "= path" of a further name, "/" of a directory.
func TestLayers(t *testing.T) {
	type layer []member
	for name, test := range map[string]struct {
		layers []layer
		want   map[string]string
	}{
		"one layer": {
			[]layer{{dir("d/"), file("d/f", "f"), link("l", "d/f"), hard("h", "d/f")}},
			map[string]string{"d": "/", "d/f": "f", "l": "-> d/f", "h": "= d/f"},
		},
		"a layer changes files": {
			[]layer{{file("f", "old"), file("g", "g")}, {file("f", "new")}},
			map[string]string{"f": "new", "g": "g"},
		},
		"a changed file leaves its other name": {
			[]layer{{file("f", "old"), hard("g", "f")}, {file("f", "new")}},
			map[string]string{"f": "new", "g": "old"},
		},
		"a hard link to a lower layer": {
			[]layer{{file("d/f", "f")}, {hard("g", "/d/f")}},
			map[string]string{"d": "/", "d/f": "f", "g": "= d/f"},
		},
		"a hard link to a link": {
			[]layer{{link("l", "nowhere"), hard("m", "l")}},
			map[string]string{"l": "-> nowhere", "m": "= l"},
		},
		"a hard link through a link": {
			[]layer{{file("d/f", "f"), link("l", "d"), hard("m", "l/f")}},
			map[string]string{"d": "/", "d/f": "f", "l": "-> d", "m": "= d/f"},
		},
		"a file becomes a directory": {
			[]layer{{file("f", "")}, {dir("f"), file("f/g", "g")}},
			map[string]string{"f": "/", "f/g": "g"},
		},
		"a directory becomes a file": {
			[]layer{{file("f/g", "")}, {file("f", "f")}},
			map[string]string{"f": "f"},
		},
		"a directory becomes a link": {
			[]layer{{file("f/g", "")}, {link("f", "g")}},
			map[string]string{"f": "-> g"},
		},
		"a link becomes a directory": {
			[]layer{{file("d/f", "f"), link("l", "d")}, {dir("l"), file("l/g", "g")}},
			map[string]string{"d": "/", "d/f": "f", "l": "/", "l/g": "g"},
		},
		"directories merge": {
			[]layer{{file("d/f", "f")}, {dir("d/"), file("d/g", "g")}},
			map[string]string{"d": "/", "d/f": "f", "d/g": "g"},
		},
		"names in every form": {
			[]layer{{file("./a", "a"), file("/b", "b"), file("c//c", "c"), file("./d/./d", "d"), file(".//e", "e"), dir("g///")}},
			map[string]string{"a": "a", "b": "b", "c": "/", "c/c": "c", "d": "/", "d/d": "d", "e": "e", "g": "/"},
		},
		"whiteout": {
			[]layer{{file("f", ""), file("d/f", ""), file("d/g", "g"), file("e/f", "")}, {hide(".wh.f"), hide("d/.wh.f"), hide(".wh.e"), hide(".wh.none"), hide("none/.wh.none")}},
			map[string]string{"d": "/", "d/g": "g"},
		},
		"whiteout before what the layer has": {
			[]layer{{file("f", "old"), file("d/f", "old"), file("d/g", "")}, {hide(".wh.f"), file("f", "new"), hide(".wh.d"), file("d/f", "new")}},
			map[string]string{"f": "new", "d": "/", "d/f": "new"},
		},
		"whiteout after what the layer has": {
			[]layer{{file("f", "old"), file("d/f", "old"), file("d/g", "")}, {file("f", "new"), file("d/f", "new"), hide(".wh.f"), hide(".wh.d")}},
			map[string]string{"f": "new", "d": "/", "d/f": "new"},
		},
		"whiteout of another name": {
			[]layer{{file("f", "f"), hard("g", "f")}, {hard("h", "f"), hide(".wh.f"), hide(".wh.h")}},
			map[string]string{"g": "f", "h": "= g"},
		},
		"what was hidden comes again": {
			[]layer{{file("f", "one")}, {hide(".wh.f")}, {file("f", "three")}},
			map[string]string{"f": "three"},
		},
		"opaque": {
			[]layer{{file("d/f", ""), file("d/e/g", ""), file("f", "f")}, {file("d/g", "g"), hide("d/.wh..wh..opq"), file("d/h", "h")}},
			map[string]string{"d": "/", "d/g": "g", "d/h": "h", "f": "f"},
		},
		"opaque below": {
			[]layer{{file("d/e/f", ""), file("d/e/g/g", "")}, {file("d/e/g/h", "h"), hide("d/.wh..wh..opq"), hide("d/e/.wh..wh..opq"), hide("none/.wh..wh..opq")}},
			map[string]string{"d": "/", "d/e": "/", "d/e/g": "/", "d/e/g/h": "h"},
		},
		"opaque root": {
			[]layer{{file("f", ""), file("d/e/f", "")}, {file("g", "g"), hide(".wh..wh..opq")}},
			map[string]string{"g": "g"},
		},
		"opaque through a link": {
			[]layer{{file("d/f", ""), link("l", "d")}, {hide("l/.wh..wh..opq")}},
			map[string]string{"d": "/", "l": "-> d"},
		},
		"what AUFS kept": {
			[]layer{{dir(".wh..wh.plnk/"), file(".wh..wh.plnk/1.2", ""), file(".wh..wh.aufs", ""), file("d/.wh..wh.x", "")}},
			map[string]string{},
		},
		"a parent is a link": {
			[]layer{{dir("real"), link("l", "real"), link("abs", "/real")}, {file("l/f", "f"), file("abs/g", "g")}},
			map[string]string{"real": "/", "real/f": "f", "real/g": "g", "l": "-> real", "abs": "-> /real"},
		},
		"a parent is a link out of the tree": {
			[]layer{{link("a", "/etc"), file("a/x", "x"), link("up", "../../../etc"), file("up/y", "y"), link("z/deep", "../../../../z"), file("z/deep/f", "f")}},
			map[string]string{"a": "-> /etc", "etc/x": "x", "up": "-> ../../../etc", "etc/y": "y", "z": "/", "z/deep": "-> ../../../../z", "z/f": "f"},
		},
		"a parent is a link to what is not there": {
			[]layer{{link("l", "/new/none/../dir"), file("l/f", "f")}},
			map[string]string{"l": "-> /new/none/../dir", "new": "/", "new/dir": "/", "new/dir/f": "f"},
		},
		"a device replaces a file": {
			[]layer{{file("f", ""), file("g", "g")}, {member{header(tar.TypeChar, "f"), ""}}},
			map[string]string{"g": "g"},
		},
		"a comment": {
			[]layer{{member{&tar.Header{Typeflag: tar.TypeXGlobalHeader, Name: "pax_global_header", PAXRecords: map[string]string{"comment": "c"}}, ""}, file("f", "f")}},
			map[string]string{"f": "f"},
		},
		"names that are no text": {
			[]layer{{file("\xff\xfe", "f"), file("a\nb", "g"), file("-rf", "h"), file("\u202etxt.exe", "i")}},
			map[string]string{"\xff\xfe": "f", "a\nb": "g", "-rf": "h", "\u202etxt.exe": "i"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var layers [][]byte
			for _, l := range test.layers {
				layers = append(layers, pack(t, l...))
			}
			all, _ := unpacked(t, layers...)
			got := map[string]string{}
			for path, e := range all {
				switch {
				case e.Link != "":
					got[path] = "= " + e.Link
				case e.Mode.IsDir():
					got[path] = "/"
				case e.Mode&fs.ModeSymlink != 0:
					got[path] = "-> " + e.Content
				default:
					got[path] = e.Content
				}
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestAttributes(t *testing.T) {
	sub := time.Unix(1234, 567)
	all, got := unpacked(t, pack(t,
		dir("./").with(func(h *tar.Header) { h.Mode, h.Uid = 0o700, 5 }),
		dir("d").with(func(h *tar.Header) { h.Mode, h.Uid, h.Gid = 0o7770, 12, 1<<32-2 }),
		file("f", "").with(func(h *tar.Header) { h.Mode, h.ModTime, h.Format = 0o7555, sub, tar.FormatPAX }),
		file("past", "").with(func(h *tar.Header) { h.ModTime, h.Format = time.Unix(-5, 0), tar.FormatPAX }),
		file("future", "").with(func(h *tar.Header) { h.ModTime, h.Format = time.Unix(1<<40, 0), tar.FormatPAX }),
		link("l", "f").with(func(h *tar.Header) { h.Mode, h.Uid, h.Gid = 0o7777, 5, 6 }),
		file("implied/f", ""),
		file("x", "").with(func(h *tar.Header) {
			h.PAXRecords = map[string]string{"SCHILY.xattr.security.capability": "\x01", "SCHILY.xattr.user.b": "v"}
		}),
		member{header(tar.TypeChar, "char"), ""}, member{header(tar.TypeBlock, "block"), ""}, member{header(tar.TypeFifo, "fifo"), ""},
	))
	want := map[string]entry{
		"d":         {fs.ModeDir | fs.ModeSticky | 0o770, 12, 1<<32 - 2, 1000, "", ""},
		"f":         {0o555, 0, 0, 1234, "", ""},
		"past":      {0o644, 0, 0, 0, "", ""},
		"future":    {0o644, 0, 0, 1 << 33, "", ""},
		"l":         {fs.ModeSymlink | 0o777, 5, 6, 1000, "f", ""},
		"implied":   {fs.ModeDir | 0o755, 0, 0, 500, "", ""},
		"implied/f": {0o644, 0, 0, 1000, "", ""},
		"x":         {0o644, 0, 0, 1000, "", ""},
	}
	if diff := cmp.Diff(want, all); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if root := read(t, got)[""]; root != (entry{fs.ModeDir | 0o755, 0, 0, 500, "", ""}) {
		t.Errorf("the root is %+v", root) // so that the Sprout can enter it, whatever the image says
	}
	if want := (image.LeftOut{Devices: 3, Setuid: 2, Xattrs: 2}); got.LeftOut != want {
		t.Errorf("left out are %+v, want %+v", got.LeftOut, want)
	}
	if want := []string{"PATH=/usr/bin:/bin", "LANG=C"}; !cmp.Equal(want, got.Env) {
		t.Errorf("the environment is %q", got.Env)
	}
}

// A hidden directory that has something again is not what it was.
func TestHiddenDirectoryLosesItsAttributes(t *testing.T) {
	own := func(h *tar.Header) { h.Mode, h.Uid = 0o700, 7 }
	for name, upper := range map[string][]member{
		"before": {hide(".wh.d"), file("d/f", "")},
		"after":  {file("d/f", ""), hide(".wh.d")},
	} {
		all, _ := unpacked(t, pack(t, dir("d").with(own)), pack(t, upper...))
		if got, want := all["d"], (entry{fs.ModeDir | 0o755, 0, 0, 500, "", ""}); got != want {
			t.Errorf("whiteout %s: %+v, want %+v", name, got, want)
		}
	}
}

// TestHostileLayers: each is refused by the name of the entry, and leaves nothing.
func TestHostileLayers(t *testing.T) {
	long := strings.Repeat("n", 256)
	deep := strings.Repeat("d/", 600) + "f"
	long4000 := strings.Repeat(strings.Repeat("n", 199)+"/", 18)
	pax := func(h *tar.Header) { h.Format = tar.FormatPAX }
	for name, test := range map[string]struct {
		layer []byte
		words []string
	}{
		"climbing name":           {pack(t, file("../x", "")), []string{`"../x"`, "upwards"}},
		"climbing name inside":    {pack(t, file("a/../../x", "")), []string{`"a/../../x"`}},
		"climbing absolute name":  {pack(t, file("/../x", "")), []string{`"/../x"`}},
		"climbing whiteout":       {pack(t, hide("../.wh.x")), []string{"upwards"}},
		"no name":                 {rename(t, pack(t, file("x", "")), "x", ""), []string{"no name"}},
		"long name":               {pack(t, file(long, "").with(pax)), []string{"255"}},
		"long path":               {pack(t, file(strings.Repeat(strings.Repeat("n", 100)+"/", 50)+"f", "").with(pax)), []string{"4095"}},
		"deep path":               {pack(t, file(deep, "").with(pax)), []string{"512 levels"}},
		"deep through a link":     {pack(t, dir(deep[:2*400]).with(pax), link("l", deep[:2*400]), file("l/"+deep[:2*200]+"f", "").with(pax)), []string{"512 levels"}},
		"long through a link":     {pack(t, dir(long4000).with(pax), link("l", long4000), file("l/"+long4000[:400]+"f", "").with(pax)), []string{"4095 bytes"}},
		"loop":                    {pack(t, link("a", "b"), link("b", "a"), file("a/x", "")), []string{`"a/x"`, "symbolic links"}},
		"loop through itself":     {pack(t, link("a", "a/b"), file("a/x", "")), []string{"symbolic links"}},
		"parent is a file":        {pack(t, file("f", ""), file("f/x", "")), []string{`"f/x"`, "no directory"}},
		"hard link to nothing":    {pack(t, hard("h", "none")), []string{`"h"`, `"none"`, "no such file"}},
		"hard link out":           {pack(t, hard("h", "../../etc/passwd")), []string{"upwards"}},
		"hard link to the host":   {pack(t, hard("h", "/etc/shadow")), []string{"no such file"}},
		"hard link through a way": {pack(t, link("a", "/etc"), hard("h", "a/shadow")), []string{"no such file"}},
		"hard link to directory":  {pack(t, dir("d"), hard("h", "d")), []string{"directory"}},
		"hard link to itself":     {pack(t, file("h", ""), hard("h", "./h")), []string{"itself"}},
		"hard link to root":       {pack(t, hard("h", "/")), []string{"no such file"}},
		"link to nothing":         {pack(t, link("l", "")), []string{"target of the symbolic link"}},
		"root is a file":          {pack(t, file("./", "").with(func(h *tar.Header) { h.Typeflag = tar.TypeSymlink; h.Linkname = "/etc" })), []string{"root"}},
		"whiteout of nothing":     {pack(t, hide(".wh.")), []string{"whiteout of nothing"}},
		"whiteout of dot":         {pack(t, hide("d/.wh...")), []string{"whiteout of nothing"}},
		"below a whiteout":        {pack(t, file(".wh.d/f", "")), []string{"kept for whiteouts"}},
		"unknown type":            {pack(t, member{header('Z', "z"), ""}), []string{`'Z'`}},
		"owner out of range":      {pack(t, file("f", "").with(func(h *tar.Header) { h.Uid = 1 << 33; h.Format = tar.FormatPAX })), []string{"owner"}},
		"no tar":                  {[]byte(strings.Repeat("x", 2048)), []string{"layer 1"}},
		"cut off":                 {pack(t, file("f", strings.Repeat("x", 2048)))[:1024], []string{`"f"`, "unexpected EOF"}},
	} {
		t.Run(name, func(t *testing.T) {
			s, dir := open(t, image.Options{})
			refused(t, s, dir, onDisk(t, compose(t, test.layer)), fault.Invalid, test.words...)
		})
	}
}

// A symbolic link is never followed on the host, wherever the name stands.
func TestHostIsNotTouched(t *testing.T) {
	outside := t.TempDir()
	all, _ := unpacked(t, pack(t,
		link("a", outside), file("a/x", "planted"),
		link("b", ".."), file("b/b/b/b/y", "planted"),
		link("c", "/proc/self/root"+outside), file("c/z", "planted"),
	))
	for path := range maps.Keys(all) {
		if strings.HasSuffix(path, "/x") && !strings.HasPrefix("/"+path, outside) {
			t.Errorf("the file went to %s", path)
		}
	}
	if names := stored(t, outside); len(names) != 1 {
		t.Errorf("%s has %q", outside, names)
	}
}
