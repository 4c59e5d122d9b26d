//go:build linux

package image_test

import (
	"context"
	"io/fs"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tendril/fault"
	"tendril/rootfs/image"
)

// places of every image, as a wall mounts on them.
var places = map[string]entry{
	".tendril":                 {Mode: fs.ModeDir | 0o711},
	".tendril/private":         {Mode: fs.ModeDir | 0o700},
	".tendril/private/base":    {Mode: fs.ModeDir | 0o700},
	".tendril/private/scratch": {Mode: fs.ModeDir | 0o700},
	".tendril/stoma":           {Mode: 0o644},
	"dev":                      {Mode: fs.ModeDir | 0o755},
	"etc":                      {Mode: fs.ModeDir | 0o755},
	"etc/group":                {Mode: 0o644, Content: "sprout:x:70707:\n"},
	"etc/hostname":             {Mode: 0o644, Content: "terrarium\n"},
	"etc/hosts":                {Mode: 0o644, Content: "127.0.0.1 localhost terrarium\n::1 localhost terrarium\n"},
	"etc/mtab":                 {Mode: fs.ModeSymlink | 0o777, Content: "/proc/mounts"},
	"etc/nsswitch.conf":        {Mode: 0o644, Content: "..."},
	"etc/passwd":               {Mode: 0o644, Content: "sprout:x:70707:70707::/home/sprout:/bin/sh\n"},
	"etc/resolv.conf":          {Mode: 0o644},
	"etc/ssl/cert.pem":         {Mode: 0o644},
	"home":                     {Mode: fs.ModeDir | 0o755},
	"home/sprout":              {Mode: fs.ModeDir | 0o755},
	"":                         {Mode: fs.ModeDir | 0o755},
	"opt":                      {Mode: fs.ModeDir | 0o755},
	"opt/tendril":              {Mode: fs.ModeDir | 0o755},
	"opt/tendril/sprout":       {Mode: 0o644},
	"proc":                     {Mode: fs.ModeDir | 0o755},
	"root":                     {Mode: fs.ModeDir | 0o700},
	"run":                      {Mode: fs.ModeDir | 0o755},
	"sys":                      {Mode: fs.ModeDir | 0o755},
	"tmp":                      {Mode: fs.ModeDir | fs.ModeSticky | 0o777},
	"usr":                      {Mode: fs.ModeDir | 0o755},
	"var":                      {Mode: fs.ModeDir | 0o755},
	"var/tmp":                  {Mode: fs.ModeSymlink | 0o777, Content: "../tmp"},
	"workspace":                {Mode: fs.ModeDir | 0o755},

	"etc/ssl/certs/ca-certificates.crt": {Mode: 0o644},
	"etc/ssl/certs/java/cacerts":        {Mode: 0o644},
	"etc/pki/tls/certs/ca-bundle.crt":   {Mode: 0o644},
}

// checkPlaces checks that a tree has the places.
func checkPlaces(t *testing.T, all map[string]entry) {
	t.Helper()
	for path, want := range places {
		got, ok := all[path]
		if !ok {
			t.Errorf("there is no /%s", path)
			continue
		}
		if want.Content == "..." {
			want.Content = got.Content
		}
		want.Mtime, want.Link = got.Mtime, got.Link
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("/%s (-want +got):\n%s", path, diff)
		}
	}
}

func TestPlaces(t *testing.T) {
	s, _ := open(t, image.Options{})
	checkPlaces(t, read(t, get(t, s, onDisk(t, compose(t)))))
}

// Whatever an image has in the place of one is replaced.
func TestPlacesAreTaken(t *testing.T) {
	var asFiles, asLinks, asDirs []member
	for path, e := range places {
		top := path != "" && !strings.Contains(path, "/")
		if top {
			asFiles = append(asFiles, file(path, "planted"))
			asLinks = append(asLinks, link(path, "/planted"))
		}
		if !e.Mode.IsDir() {
			asDirs = append(asDirs, dir(path), file(path+"/planted", "planted"))
		}
	}
	odd := []member{
		dir("planted"), link("opt", "/planted"), link("workspace", "/etc"), link("tmp", "/usr"),
		file(".tendril/stoma", "planted"), file(".tendril/private/base/f", "planted"), file("proc/f", "planted"),
		file("home/sprout/f", "planted"), hard("opt2", ".tendril/stoma"), file("dev/null", "planted"),
		link("etc/ssl/certs", "/workspace/certs"), link("etc/pki", "pki"), link("etc/hosts", "/planted/hosts"),
		dir("home/sprout").with(owned), dir("tmp/").with(owned), dir("root").with(owned), dir("etc").with(owned), dir(".").with(owned),
	}
	for name, layer := range map[string][]member{"files": asFiles, "links": asLinks, "directories": asDirs, "odd": odd} {
		t.Run(name, func(t *testing.T) {
			s, _ := open(t, image.Options{})
			all := read(t, get(t, s, onDisk(t, compose(t, pack(t, layer...)))))
			checkPlaces(t, all)
			for path := range all {
				for _, empty := range []string{"proc", "sys", "dev", "workspace", "tmp", "home/sprout", ".tendril/private/base"} {
					if strings.HasPrefix(path, empty+"/") {
						t.Errorf("there is /%s", path)
					}
				}
			}
		})
	}
}

// Certificates that the image trusts stay, under the same name as a file.
func TestTrustStoresKeepTheirContent(t *testing.T) {
	s, _ := open(t, image.Options{})
	all := read(t, get(t, s, onDisk(t, compose(t, pack(t,
		file("etc/pki/ca-trust/extracted/pem/tls.pem", "roots"), // as Fedora has it
		link("etc/pki/tls/certs/ca-bundle.crt", "../../ca-trust/extracted/pem/tls.pem"),
		link("etc/ssl/certs", "../pki/tls/certs"), link("etc/pki/tls/certs/ca-certificates.crt", "ca-bundle.crt"),
		file("etc/ssl/cert.pem", "own"),
		link("etc/pki/tls/certs/java", "/tmp/java"), file("tmp/java/cacerts", "gone"),
	)))))
	roots, link := entry{Mode: 0o644, Content: "roots"}, entry{Mode: fs.ModeSymlink | 0o777, Content: "../pki/tls/certs"}
	if got := all["etc/ssl/certs"]; got.Content != link.Content {
		t.Errorf("/etc/ssl/certs is %+v", got)
	}
	for path, want := range map[string]entry{
		"etc/pki/tls/certs/ca-bundle.crt": roots, "etc/pki/tls/certs/ca-certificates.crt": roots,
		"etc/ssl/cert.pem":               {Mode: 0o644, Content: "own"}, // A link to where nothing stays is replaced, and what it led to is kept.
		"etc/pki/tls/certs/java/cacerts": {Mode: 0o644, Content: "gone"},
	} {
		got := all[path]
		got.Mtime, got.Link = 0, ""
		if got != want {
			t.Errorf("/%s is %+v, want %+v", path, got, want)
		}
	}
}

func TestAccounts(t *testing.T) {
	s, _ := open(t, image.Options{})
	all := read(t, get(t, s, onDisk(t, compose(t, pack(t,
		file("usr/lib/passwd", "root:x:0:0:root:/root:/bin/sh\nsprout:x:5:5::/:/bin/sh\nother:x:070707:1::/:/bin/sh\n\n# odd\nnobody:x:65534:65534::/:/bin/false"),
		link("etc/passwd", "../usr/lib/passwd"),
		file("etc/group", "root:x:0:\nx:x:70707:root\nsprout:x:7:\n"),
	)))))
	if got, want := all["etc/passwd"].Content, "root:x:0:0:root:/root:/bin/sh\n\n# odd\nnobody:x:65534:65534::/:/bin/false\nsprout:x:70707:70707::/home/sprout:/bin/sh\n"; got != want {
		t.Errorf("passwd is %q, want %q", got, want)
	}
	if got, want := all["etc/group"].Content, "root:x:0:\nsprout:x:70707:\n"; got != want {
		t.Errorf("group is %q, want %q", got, want)
	}
	if got := all["usr/lib/passwd"].Content; !strings.Contains(got, "other") {
		t.Errorf("the file that was linked to is %q", got)
	}
	s, path := open(t, image.Options{})
	refused(t, s, path, onDisk(t, compose(t, pack(t, file("etc/passwd", strings.Repeat("x", 5<<20))))), fault.Invalid, "/etc/passwd")
	refused(t, s, path, onDisk(t, compose(t, pack(t, file("etc/group", "a\x00b")))), fault.Invalid, "/etc/group")
}

// The account is part of what an image is unpacked for.
func TestAnotherAccount(t *testing.T) {
	s, path := open(t, image.Options{})
	ref := onDisk(t, compose(t))
	_, release, err := s.Get(context.Background(), ref)
	if err != nil {
		t.Fatal(err)
	}
	other, err := image.OpenStore(path, image.Options{User: otherAccount})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := other.Get(context.Background(), ref); !fault.Is(err, fault.Unavailable) {
		t.Errorf("an image in use was replaced: %v", err)
	}
	release()
	if got := read(t, get(t, other, ref))["etc/group"].Content; got != "other:x:9:\n" {
		t.Errorf("the group is %q", got)
	}
}
