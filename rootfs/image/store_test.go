//go:build linux

package image_test

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"

	"tendril/fault"
	"tendril/goroutines"
	"tendril/rootfs/image"
)

// unpacking names what a process of its own unpacks: a store and a reference.
const unpacking = "TENDRIL_TEST_UNPACK"

// TestMain is also the main of the processes that the tests begin.
func TestMain(m *testing.M) {
	if store, ref, ok := strings.Cut(os.Getenv(unpacking), "\n"); ok {
		s, err := image.OpenStore(store, image.Options{User: sprout, Registry: http.DefaultTransport})
		if err == nil {
			_, _, err = s.Get(context.Background(), ref)
		}
		if err != nil {
			println(err.Error())
			os.Exit(1)
		}
		return
	}
	goroutines.Main(m, "tendril/rootfs/image")
}

func TestRecord(t *testing.T) {
	s, path := open(t, image.Options{})
	img := configured(t, holding(t, "x"), func(c *v1.ConfigFile) {
		c.Config.Env = []string{"A=1", "PATH=/bin", "B=", "A=2=3", "none", "=x", "a b=c", "N\x00=x", "é=y"}
		c.Config.Volumes = map[string]struct{}{"/z": {}, "/data": {}}
		c.Config.Healthcheck = &v1.HealthConfig{Test: []string{"CMD", "true"}}
		c.Config.User, c.Config.WorkingDir, c.Config.Entrypoint = "root", "/z", []string{"/bin/false"}
	})
	got := get(t, s, onDisk(t, img))
	manifest, _, _ := parts(t, img)
	want := image.Record{
		Form: "1 70707:70707 sprout /home/sprout", Digest: manifest.String(), Env: []string{"A=2=3", "PATH=/bin", "B=", "é=y"},
		Volumes: []string{"/data", "/z"}, Healthcheck: true, Entries: got.Entries, Size: got.Size, LeftOut: image.LeftOut{Env: 4},
	}
	if diff := cmp.Diff(want, got.Record); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if again := get(t, s, got.Digest); !cmp.Equal(again.Record, got.Record) {
		t.Errorf("read again it is %+v", again.Record)
	}
	if err := filepath.WalkDir(path, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if info, err := d.Info(); err != nil || info.Mode()&0o077 != 0 {
			t.Errorf("%s has mode %v: %v", path, info.Mode(), err)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	for what, change := range map[string]func(*v1.ConfigFile){
		"variables":  func(c *v1.ConfigFile) { c.Config.Env = make([]string, 1001) },
		"bytes":      func(c *v1.ConfigFile) { c.Config.Env = []string{"A=" + strings.Repeat("x", 128<<10)} },
		"volumes":    func(c *v1.ConfigFile) { c.Config.Volumes = many() },
		"volume":     func(c *v1.ConfigFile) { c.Config.Volumes = map[string]struct{}{strings.Repeat("x", 5000): {}} },
		"type":       func(c *v1.ConfigFile) { c.RootFS.Type = "layers+" },
		"linux/":     func(c *v1.ConfigFile) { c.Architecture = "" },
		"windows/am": func(c *v1.ConfigFile) { c.OS, c.Architecture = "windows", "amd64" },
	} {
		refused(t, s, path, onDisk(t, configured(t, img, change)), fault.Invalid, what)
	}
}

func many() map[string]struct{} {
	all := map[string]struct{}{}
	for i := range 1001 {
		all["/"+strings.Repeat("v", i)] = struct{}{}
	}
	return all
}

// The same image gives the same bytes, from wherever it comes.
func TestReproducible(t *testing.T) {
	img := compose(t, pack(t, dir("d"), file("d/f", "f"), hard("g", "d/f"), hard("a", "d/f"), link("l", "d"), file("l/m", "m"), file("z", "z")),
		pack(t, hide(".wh.z"), file("y", strings.Repeat("y", 10000))))
	var first []byte
	for _, ref := range []string{onDisk(t, img), onDisk(t, img), archiveOf(t, map[string]v1.Image{"name:1": img})} {
		s, _ := open(t, image.Options{})
		data, err := os.ReadFile(get(t, s, ref).Path)
		if err != nil {
			t.Fatal(err)
		}
		if first == nil {
			first = data
		}
		if !bytes.Equal(first, data) {
			t.Errorf("%s gave other bytes", ref)
		}
	}
}

// Several that want the same image at once, in stores that are one directory, unpack it once.
func TestOnce(t *testing.T) {
	_, path := open(t, image.Options{})
	ref := onDisk(t, holding(t, "x"))
	var wait sync.WaitGroup
	made := make(chan bool, 16)
	for range cap(made) {
		wait.Go(func() {
			s, err := image.OpenStore(path, image.Options{User: sprout})
			if err != nil {
				t.Error(err)
				return
			}
			got, release, err := s.Get(context.Background(), ref)
			if err != nil {
				t.Error(err)
				return
			}
			release()
			made <- !got.Cached
		})
	}
	wait.Wait()
	close(made)
	times := 0
	for m := range made {
		if m {
			times++
		}
	}
	if times != 1 {
		t.Errorf("the image was unpacked %d times", times)
	}
}

func TestEviction(t *testing.T) {
	_, path := open(t, image.Options{})
	s, err := image.OpenStore(path, image.Options{User: sprout, MaxBytes: 100 << 10})
	if err != nil {
		t.Fatal(err)
	}
	var digests []string
	var releases []func()
	for _, content := range []string{"a", "b", "c"} {
		got, release, err := s.Get(context.Background(), onDisk(t, holding(t, strings.Repeat(content, 40<<10))))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(got.Path, time.Time{}, time.Unix(int64(1000+len(digests)), 0)); err != nil {
			t.Fatal(err)
		}
		digests, releases = append(digests, got.Digest), append(releases, release)
	}
	there := func() (list string) {
		for i, d := range digests {
			if _, err := os.Stat(filepath.Join(path, strings.Replace(d, ":", "-", 1))); err == nil {
				list += string(rune('a' + i))
			}
		}
		return list
	}
	if got := there(); got != "abc" {
		t.Errorf("images in use were evicted: %s are there", got)
	}
	releases[1]()
	releases[2]()
	used := get(t, s, digests[1]) // and so it is the last one to go
	if err := os.Chtimes(used.Path, time.Time{}, time.Unix(2000, 0)); err != nil {
		t.Fatal(err)
	}
	get(t, s, onDisk(t, holding(t, "small")))
	if got := there(); got != "ab" {
		t.Errorf("%s are there, and c should have gone: nobody uses it", got)
	}
	releases[0]()
	if names, err := os.ReadDir(filepath.Join(path, "scratch")); err != nil || len(names) != 0 {
		t.Errorf("%v stayed in the scratch directory: %v", names, err)
	}
}

// What is damaged in the store is made again.
func TestDamage(t *testing.T) {
	ref := onDisk(t, holding(t, "x"))
	for name, change := range map[string]func(dir string) error{
		"cut image":    func(d string) error { return os.Truncate(d+"/root.erofs", 8192) },
		"empty image":  func(d string) error { return os.Truncate(d+"/root.erofs", 0) },
		"zeros":        func(d string) error { return os.WriteFile(d+"/root.erofs", make([]byte, 8192), 0o600) },
		"no image":     func(d string) error { return os.Remove(d + "/root.erofs") },
		"no record":    func(d string) error { return os.Remove(d + "/config.json") },
		"empty record": func(d string) error { return os.Truncate(d+"/config.json", 0) },
		"other record": func(d string) error {
			return edit(d+"/config.json", filepath.Base(d)[len("sha256-"):], zeroes[7:])
		},
		"unknown field": func(d string) error {
			return edit(d+"/config.json", `{"form"`, `{"x":1,"form"`)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := open(t, image.Options{})
			got, release, err := s.Get(context.Background(), ref)
			if err != nil {
				t.Fatal(err)
			}
			release()
			if err := change(filepath.Dir(got.Path)); err != nil {
				t.Fatal(err)
			}
			if _, _, err := s.Get(context.Background(), got.Digest); !fault.Is(err, fault.NotFound) {
				t.Errorf("a damaged image was taken: %v", err)
			}
			if again := get(t, s, ref); again.Cached || read(t, again)["which"].Content != "x" {
				t.Errorf("got %+v", again)
			}
		})
	}
}

func edit(path, old, now string) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if !strings.Contains(string(data), old) {
		return fmt.Errorf("%s has no %s", path, old)
	}
	return os.WriteFile(path, []byte(strings.Replace(string(data), old, now, 1)), 0o600)
}

// A process that dies while it unpacks leaves nothing that is taken for an image, and
// nothing at all once the store was opened again.
func TestKilled(t *testing.T) {
	reg := serve(t)
	img := compose(t, pack(t, file("first", strings.Repeat("1", 1<<20))), pack(t, file("which", "x")))
	reg.push(t, "name:tag", img)
	m, err := img.Manifest()
	if err != nil {
		t.Fatal(err)
	}
	reached := make(chan struct{})
	reg.answer(func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.Contains(r.URL.Path, m.Layers[1].Digest.String()) {
			return false
		}
		close(reached)
		<-r.Context().Done()
		return true
	})
	_, path := open(t, image.Options{})
	empty := stored(t, path)
	ref := reg.host + "/name:tag"
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), unpacking+"="+path+"\n"+ref)
	child.Stderr = os.Stderr
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	<-reached
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = child.Wait()
	if left := stored(t, path); len(left) <= len(empty) {
		t.Errorf("it was killed too early: %q", left)
	}
	never := func(http.ResponseWriter, *http.Request) bool { return false }
	reg.answer(never)
	s, err := image.OpenStore(path, image.Options{User: sprout, Registry: reg})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(empty, stored(t, path)); diff != "" {
		t.Errorf("what it left is still there:\n%s", diff)
	}
	if got := get(t, s, ref); got.Cached || read(t, got)["which"].Content != "x" {
		t.Errorf("got %+v", got)
	}
}

func TestStoreIsOurs(t *testing.T) {
	path := filepath.Join(t.TempDir(), "images")
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := image.OpenStore(path, image.Options{User: sprout}); !fault.Is(err, fault.Unavailable) {
		t.Errorf("a directory that others write was taken: %v", err)
	}
	if _, err := image.OpenStore(filepath.Join(t.TempDir(), "images"), image.Options{}); !fault.Is(err, fault.Invalid) {
		t.Errorf("an account of uid 0 was taken: %v", err)
	}
}
