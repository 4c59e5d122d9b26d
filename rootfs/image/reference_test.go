//go:build linux

package image_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"golang.org/x/sys/unix"

	"tendril/fault"
	"tendril/rootfs/image"
)

// layoutOf writes images with tags as one OCI layout.
func layoutOf(t testing.TB, tagged map[string]v1.Image) string {
	t.Helper()
	path := t.TempDir()
	l, err := layout.Write(path, empty.Index)
	if err != nil {
		t.Fatal(err)
	}
	for tag, img := range tagged {
		if err := l.AppendImage(img, layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": tag})); err != nil {
			t.Fatal(err)
		}
	}
	return path
}

// archiveOf writes images as docker save does.
func archiveOf(t testing.TB, tagged map[string]v1.Image) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "saved.tar")
	images := map[name.Tag]v1.Image{}
	for tag, img := range tagged {
		ref, err := name.NewTag(tag)
		if err != nil {
			t.Fatal(err)
		}
		images[ref] = img
	}
	if err := tarball.MultiWriteToFile(path, images); err != nil {
		t.Fatal(err)
	}
	return path
}

// holding is an image with one file that says which one it is.
func holding(t testing.TB, content string) v1.Image {
	return compose(t, pack(t, file("which", content)))
}

func foreign(t testing.TB) v1.Image {
	return configured(t, holding(t, "foreign"), func(c *v1.ConfigFile) { c.Architecture = "s390x" })
}

// platforms is an index of one image for each platform.
func platforms(t testing.TB, images map[string]v1.Image) v1.ImageIndex {
	t.Helper()
	index := v1.ImageIndex(empty.Index)
	for platform, img := range images {
		p, err := v1.ParsePlatform(platform)
		if err != nil {
			t.Fatal(err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{Platform: p}})
	}
	return index
}

const ours = "linux/" + runtime.GOARCH

func TestReferences(t *testing.T) {
	one, two := holding(t, "one"), holding(t, "two")
	dir := layoutOf(t, map[string]v1.Image{"1": one, "registry.example/name:2": two})
	single := onDisk(t, one)
	saved := archiveOf(t, map[string]v1.Image{"name:1": one, "registry.example/name:2": two})
	single2 := archiveOf(t, map[string]v1.Image{"name:1": one, "name:again": one})
	plural := t.TempDir()
	if l, err := layout.Write(plural, platforms(t, map[string]v1.Image{"linux/s390x": foreign(t), ours: one, "windows/amd64": two})); err != nil || l == "" {
		t.Fatal(err)
	}
	nested := t.TempDir()
	l, err := layout.Write(nested, empty.Index)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.AppendIndex(platforms(t, map[string]v1.Image{"linux/s390x": foreign(t), ours: two})); err != nil {
		t.Fatal(err)
	}
	colon := filepath.Join(t.TempDir(), "with:colon")
	if err := os.CopyFS(colon, os.DirFS(single)); err != nil {
		t.Fatal(err)
	}

	s, store := open(t, image.Options{})
	for ref, want := range map[string]string{
		"oci:" + single: "one", single: "one", "oci:" + dir + ":1": "one", dir + ":2": "two", dir + ":registry.example/name:2": "",
		"docker-archive:" + saved + ":1": "one", saved + ":2": "two", single2: "one", single2 + ":again": "one",
		plural: "one", nested: "two", colon: "one", "oci:" + colon: "one",
	} {
		if want == "" {
			continue // a tag with a slash would be a path
		}
		img := get(t, s, ref)
		if got := read(t, img)["which"].Content; got != want {
			t.Errorf("%s is %q, want %q", ref, got, want)
		}
		if resolved, err := s.Resolve(context.Background(), ref); err != nil || resolved != img.Digest {
			t.Errorf("%s is resolved to %s (%v), and is %s", ref, resolved, err, img.Digest)
		}
		if again := get(t, s, img.Digest); again.Path != img.Path || !again.Cached {
			t.Errorf("%s by digest is %+v", ref, again)
		}
	}
	manifest, err := one.Digest()
	if err != nil {
		t.Fatal(err)
	}
	if got := get(t, s, single); got.Digest != manifest.String() || !strings.HasSuffix(got.Path, "/sha256-"+manifest.Hex+"/root.erofs") {
		t.Errorf("the image of manifest %s is %s at %s", manifest, got.Digest, got.Path)
	}
	id, err := one.ConfigName()
	if err != nil {
		t.Fatal(err)
	}
	if got := get(t, s, single2); got.Digest != id.String() {
		t.Errorf("an archived image with the ID %s has the digest %s", id, got.Digest)
	}

	plain := filepath.Join(t.TempDir(), "plain")
	if err := os.WriteFile(plain, []byte("no tar"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(plain+":1", os.DirFS(single)); err != nil {
		t.Fatal(err)
	}
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	other := onDisk(t, foreign(t))
	for ref, want := range map[string]struct {
		kind  fault.Kind
		words []string
	}{
		"":                                 {fault.Invalid, []string{"names nothing", "oci:/DIRECTORY"}},
		"debian:12":                        {fault.Invalid, []string{"no registry"}},
		"library/debian:12":                {fault.Invalid, []string{"no registry"}},
		"registry.example/name":            {fault.Invalid, []string{"registry.example/name"}},
		"registry.example/Name:1":          {fault.Invalid, nil},
		"registry.example/name@sha256:12":  {fault.Invalid, nil},
		"registry.example/name:1":          {fault.Denied, []string{"registries may not be asked"}},
		"registry.example/name@" + zeroes:  {fault.Denied, []string{"registries may not be asked"}},
		zeroes:                             {fault.NotFound, []string{"not in the store"}},
		"sha256:12":                        {fault.Invalid, []string{"64 hexadecimal"}},
		strings.ToUpper(zeroes[:7]) + "12": {fault.Invalid, nil},
		"a\x00b":                           {fault.Invalid, []string{"control"}},
		"oci:relative":                     {fault.Invalid, []string{"not absolute"}},
		"./relative":                       {fault.Invalid, []string{"not absolute"}},
		"oci:/none":                        {fault.NotFound, []string{"there is no /none"}},
		"/none.tar:1":                      {fault.NotFound, []string{"there is no /none.tar"}},
		store:                              {fault.Invalid, []string{"no OCI layout"}},
		"docker-archive:" + single:         {fault.Invalid, nil},
		"oci:" + saved:                     {fault.Invalid, []string{"is a directory"}},
		plain:                              {fault.Invalid, []string{"no whole tar", "docker save"}},
		plain + ":1":                       {fault.Invalid, []string{"both", `is "1" a tag?`}},
		single + ":":                       {fault.Invalid, []string{"tag is empty"}},
		dir:                                {fault.Invalid, []string{"2 images", "its tags are"}},
		dir + ":3":                         {fault.NotFound, []string{`no image with the tag "3"`, "registry.example/name:2"}},
		saved:                              {fault.Invalid, []string{"2 images", "registry.example/name:2"}},
		saved + ":3":                       {fault.NotFound, []string{`"3"`, "registry.example/name:2"}},
		other:                              {fault.Invalid, []string{"linux/s390x", ours}},
		fifo:                               {fault.Invalid, []string{"no regular file"}},
		"/dev/zero":                        {fault.Invalid, []string{"no regular file"}},
		"/" + strings.Repeat("x/", 3000):   {fault.Invalid, []string{"too long"}},
	} {
		refused(t, s, store, ref, want.kind, want.words...)
	}
}

var zeroes = "sha256:" + strings.Repeat("0", 64)

// spoil changes a blob of a layout.
func spoil(t *testing.T, dir string, digest v1.Hash, change func([]byte) []byte) {
	t.Helper()
	path := filepath.Join(dir, "blobs/sha256", digest.Hex)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, change(data), 0o600); err != nil {
		t.Fatal(err)
	}
}

// parts are the digests of an image's manifest, configuration and first layer.
func parts(t *testing.T, img v1.Image) (manifest, config, layer v1.Hash) {
	t.Helper()
	manifest, err := img.Digest()
	if err != nil {
		t.Fatal(err)
	}
	m, err := img.Manifest()
	if err != nil {
		t.Fatal(err)
	}
	return manifest, m.Config.Digest, m.Layers[0].Digest
}

// TestDigests: nothing of an image is believed that is not what its digest says.
func TestDigests(t *testing.T) {
	flip := func(b []byte) []byte { b[len(b)-1] ^= 1; return b }
	grow := func(b []byte) []byte { return append(b, 0) }
	cut := func(b []byte) []byte { return b[:len(b)-1] }
	for name, change := range map[string]func([]byte) []byte{"changed": flip, "longer": grow, "shorter": cut} {
		for part := range 3 {
			img := holding(t, "x")
			dir := onDisk(t, img)
			manifest, config, layer := parts(t, img)
			spoil(t, dir, []v1.Hash{manifest, config, layer}[part], change)
			s, store := open(t, image.Options{})
			t.Run(name, func(t *testing.T) { refused(t, s, store, dir, fault.Invalid) })
		}
	}
	// What still says the same, in other bytes.
	img := holding(t, "x")
	manifest, config, layer := parts(t, img)
	for digest, change := range map[v1.Hash]func([]byte) []byte{
		manifest: func(b []byte) []byte { return append(b, '\n') },
		config:   func(b []byte) []byte { return bytes.Replace(b, []byte("LANG=C"), []byte("LANG=D"), 1) },
		layer:    func(b []byte) []byte { b[9] ^= 1; return b }, // the system in the header of gzip
	} {
		dir := onDisk(t, img)
		spoil(t, dir, digest, change)
		s, store := open(t, image.Options{})
		refused(t, s, store, dir, fault.Invalid, "digest")
	}
	// A layer that is shorter or longer than its manifest says.
	for _, by := range []int64{-1, 1} {
		raw, err := img.RawManifest()
		if err != nil {
			t.Fatal(err)
		}
		m, err := v1.ParseManifest(bytes.NewReader(raw))
		if err != nil {
			t.Fatal(err)
		}
		m.Layers[0].Size += by
		changed, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		dir := onDisk(t, img)
		digest, size, err := v1.SHA256(bytes.NewReader(changed))
		if err != nil {
			t.Fatal(err)
		}
		index := fmt.Sprintf(`{"schemaVersion":2,"manifests":[{"mediaType":%q,"size":%d,"digest":%q}]}`, m.MediaType, size, digest)
		if err := errors.Join(written("blobs/sha256/"+digest.Hex, string(changed))(dir), written("index.json", index)(dir)); err != nil {
			t.Fatal(err)
		}
		s, store := open(t, image.Options{})
		refused(t, s, store, dir, fault.Invalid, "layer 1", "than it should be")
	}
	// A layer that is what the manifest says, and not what the configuration says.
	img = configured(t, holding(t, "x"), func(c *v1.ConfigFile) { c.RootFS.DiffIDs[0].Hex = strings.Repeat("1", 64) })
	s, store := open(t, image.Options{})
	refused(t, s, store, onDisk(t, img), fault.Invalid, "layer 1", "uncompressed digest")
	refused(t, s, store, archiveOf(t, map[string]v1.Image{"name:1": img}), fault.Invalid, "layer 1", "uncompressed digest")
	img = configured(t, holding(t, "x"), func(c *v1.ConfigFile) { c.RootFS.DiffIDs = nil })
	refused(t, s, store, onDisk(t, img), fault.Invalid, "names 0 layers")
}

// A layout may lie: with links, pipes and documents of another shape.
func TestHostileLayouts(t *testing.T) {
	img := holding(t, "x")
	manifest, config, layer := parts(t, img)
	for name, test := range map[string]struct {
		change func(dir string) error
		kind   fault.Kind
		words  []string
	}{
		"no blob":         {func(d string) error { return os.Remove(d + "/blobs/sha256/" + layer.Hex) }, fault.NotFound, []string{"not whole", layer.Hex}},
		"blob is a pipe":  {replaced(layer, func(p string) error { return unix.Mkfifo(p, 0o600) }), fault.Invalid, []string{"no regular file"}},
		"blob is outside": {replaced(layer, func(p string) error { return os.Symlink("/etc/hostname", p) }), fault.Unavailable, []string{"escapes"}},
		"manifest is a pipe": {replaced(manifest, func(p string) error { return unix.Mkfifo(p, 0o600) }), fault.Invalid,
			[]string{"no regular file"}},
		"configuration is a directory": {replaced(config, func(p string) error { return os.Mkdir(p, 0o700) }), fault.Invalid, []string{"no regular file"}},
		"large index":                  {func(d string) error { return os.Truncate(d+"/index.json", 5<<20) }, fault.Invalid, []string{"more than"}},
		"no index":                     {func(d string) error { return os.Remove(d + "/index.json") }, fault.NotFound, []string{"index.json"}},
		"version":                      {written("oci-layout", `{"imageLayoutVersion":"2.0.0"}`), fault.Invalid, []string{"2.0.0"}},
		"no JSON":                      {written("index.json", `{`), fault.Invalid, nil},
		"empty":                        {written("index.json", `{"schemaVersion":2,"manifests":[]}`), fault.NotFound, []string{"no image"}},
		"index and manifest": {written("index.json", `{"schemaVersion":2,"manifests":[],"layers":[]}`), fault.Invalid,
			[]string{"neither a manifest nor an index"}},
		"schema 1":  {written("index.json", `{"schemaVersion":1,"manifests":[]}`), fault.Invalid, []string{"schema 1"}},
		"no digest": {written("index.json", `{"schemaVersion":2,"manifests":[{"mediaType":"application/vnd.oci.image.manifest.v1+json","size":3,"digest":"sha256:../../../x"}]}`), fault.Invalid, nil},
	} {
		t.Run(name, func(t *testing.T) {
			dir := onDisk(t, img)
			if err := test.change(dir); err != nil {
				t.Fatal(err)
			}
			s, store := open(t, image.Options{})
			refused(t, s, store, dir, test.kind, test.words...)
		})
	}
}

func replaced(blob v1.Hash, by func(string) error) func(string) error {
	return func(dir string) error {
		path := filepath.Join(dir, "blobs/sha256", blob.Hex)
		if err := os.Remove(path); err != nil {
			return err
		}
		return by(path)
	}
}

func written(name, content string) func(string) error {
	return func(dir string) error { return os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600) }
}

// An archive may lie, too.
func TestHostileArchives(t *testing.T) {
	img := holding(t, "x")
	config, err := img.RawConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	id, err := img.ConfigName()
	if err != nil {
		t.Fatal(err)
	}
	layer := pack(t, file("which", "x"))
	list := func(config, layer string) member {
		return file("manifest.json", `[{"Config":"`+config+`","RepoTags":null,"Layers":["`+layer+`"]}]`)
	}
	good := []member{file(id.Hex+".json", string(config)), file("layer.tar", string(layer)), list(id.Hex+".json", "layer.tar")}
	for name, test := range map[string]struct {
		members []member
		words   []string // none: it is taken
	}{
		"good":             {good, nil},
		"linked layer":     {append([]member{link("d/l", "../layer.tar"), list(id.Hex+".json", "d/l")}, good[:2]...), nil},
		"loop of links":    {[]member{link("a", "b"), link("b", "a"), good[0], list(id.Hex+".json", "a")}, []string{"link to a link"}},
		"link out":         {[]member{link("a", "/etc/hostname"), good[0], list(id.Hex+".json", "a")}, []string{"no member"}},
		"no list":          {good[:2], []string{"manifest.json", "OCI layout"}},
		"no configuration": {good[1:], []string{id.Hex}},
		"no layer":         {[]member{good[0], good[2]}, []string{"layer.tar"}},
		"two of the same":  {append([]member{file("manifest.json", `[]`)}, good...), nil},
		"no image":         {[]member{file("manifest.json", `[]`)}, []string{"no image"}},
		"no JSON":          {[]member{file("manifest.json", `[`)}, []string{"manifest.json"}},
		"other digest":     {[]member{file(zeroes[7:], string(config)), good[1], list(zeroes[7:], "layer.tar")}, []string{zeroes, id.Hex}},
		"other name":       {[]member{file("config.json", string(config)), good[1], list("config.json", "layer.tar")}, nil},
		"many members":     {slices.Repeat(good[:1], 64<<10+1), []string{"more than 65536 members"}},
		"large list":       {[]member{file("manifest.json", strings.Repeat(" ", 5<<20))}, []string{"at most"}},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "a.tar")
			if err := os.WriteFile(path, pack(t, test.members...), 0o600); err != nil {
				t.Fatal(err)
			}
			s, store := open(t, image.Options{})
			if test.words == nil {
				get(t, s, path)
				return
			}
			_, _, err := s.Get(context.Background(), path)
			want := fault.KindOf(err)
			refused(t, s, store, path, want, test.words...)
			if want != fault.Invalid && want != fault.NotFound {
				t.Errorf("%v is of the kind %s", err, want)
			}
		})
	}
	t.Run("compressed", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "a.tar.gz")
		var b bytes.Buffer
		gzipTo(t, &b, pack(t, good...))
		if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
		s, store := open(t, image.Options{})
		refused(t, s, store, path, fault.Invalid, "uncompressed")
	})
}
