//go:build linux

package image_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"tendril/fault"
	"tendril/rootfs/image"
)

// served is a registry on the loopback, and what goes to it.
type served struct {
	http.RoundTripper
	host     string
	requests atomic.Int32
	inner    http.Handler // the registry

	// handle answers before the registry does, and says whether it did.
	handle atomic.Pointer[func(http.ResponseWriter, *http.Request) bool]
}

func (s *served) RoundTrip(r *http.Request) (*http.Response, error) {
	s.requests.Add(1)
	return s.RoundTripper.RoundTrip(r)
}

func (s *served) answer(f func(http.ResponseWriter, *http.Request) bool) { s.handle.Store(&f) }

func serve(t testing.TB) *served {
	t.Helper()
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.Proxy = nil
	s := &served{RoundTripper: transport, inner: registry.New(registry.Logger(log.New(io.Discard, "", 0)))}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if f := s.handle.Load(); f != nil && (*f)(w, r) {
			return
		}
		s.inner.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		server.Close()
	})
	s.host = strings.TrimPrefix(server.URL, "http://")
	return s
}

func (s *served) push(t testing.TB, ref string, img v1.Image) {
	t.Helper()
	parsed, err := name.ParseReference(s.host + "/" + ref)
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(parsed, img, remote.WithTransport(s.RoundTripper)); err != nil {
		t.Fatal(err)
	}
}

func (s *served) pushIndex(t testing.TB, ref string, index v1.ImageIndex) string {
	t.Helper()
	parsed, err := name.ParseReference(s.host + "/" + ref)
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.WriteIndex(parsed, index, remote.WithTransport(s.RoundTripper)); err != nil {
		t.Fatal(err)
	}
	digest, err := index.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return digest.String()
}

func TestRegistry(t *testing.T) {
	reg := serve(t)
	one, two := holding(t, "one"), holding(t, "two")
	reg.push(t, "name:tag", one)
	s, store := open(t, image.Options{Registry: reg})

	digest, err := s.Resolve(context.Background(), reg.host+"/name:tag")
	if want, _, _ := parts(t, one); err != nil || digest != want.String() {
		t.Fatalf("resolved to %s: %v", digest, err)
	}
	first := get(t, s, reg.host+"/name@"+digest)
	if read(t, first)["which"].Content != "one" || first.Cached {
		t.Errorf("got %+v", first)
	}
	// What is in the store is not asked for, by whatever name its digest has.
	before := reg.requests.Load()
	for _, ref := range []string{digest, reg.host + "/name@" + digest, reg.host + "/elsewhere:tag@" + digest} {
		if got := get(t, s, ref); !got.Cached {
			t.Errorf("%s was unpacked again", ref)
		}
		if got, err := s.Resolve(context.Background(), ref); err != nil || got != digest {
			t.Errorf("%s is %s: %v", ref, got, err)
		}
	}
	if n := reg.requests.Load() - before; n != 0 {
		t.Errorf("the registry was asked %d times", n)
	}

	// A tag is what it is now.
	reg.push(t, "name:tag", two)
	if got := get(t, s, reg.host+"/name:tag"); read(t, got)["which"].Content != "two" {
		t.Errorf("the tag is still %s", got.Digest)
	}

	for ref, want := range map[string]struct {
		kind  fault.Kind
		words []string
	}{
		"name:none":      {fault.NotFound, []string{"has no none"}},
		"none:tag":       {fault.NotFound, nil},
		"name@" + zeroes: {fault.NotFound, []string{zeroes}},
	} {
		refused(t, s, store, reg.host+"/"+ref, want.kind, want.words...)
	}
	closed, store := open(t, image.Options{})
	refused(t, closed, store, reg.host+"/name:tag", fault.Denied, "registries may not be asked")
}

func TestRegistryIndex(t *testing.T) {
	reg := serve(t)
	digest := reg.pushIndex(t, "name:tag", platforms(t, map[string]v1.Image{"linux/s390x": foreign(t), ours: holding(t, "ours")}))
	other := reg.pushIndex(t, "name:other", platforms(t, map[string]v1.Image{"linux/s390x": foreign(t), "windows/amd64": holding(t, "w")}))
	s, store := open(t, image.Options{Registry: reg})
	got := get(t, s, reg.host+"/name@"+digest)
	if read(t, got)["which"].Content != "ours" {
		t.Errorf("got %+v", got)
	}
	refused(t, s, store, reg.host+"/name@"+other, fault.NotFound, "not there for "+ours, "linux/s390x, windows/amd64")

	// The digest of an index is known later, too, by a store that may ask nobody.
	again, err := image.OpenStore(store, image.Options{User: sprout})
	if err != nil {
		t.Fatal(err)
	}
	for _, ref := range []string{digest, reg.host + "/name@" + digest} {
		if found := get(t, again, ref); found.Digest != got.Digest {
			t.Errorf("%s is %+v", ref, found)
		}
	}
}

// Whatever a registry answers, nothing is taken that has not its digest, and no answer is
// without an end.
func TestHostileRegistries(t *testing.T) {
	img := holding(t, "x")
	manifest, config, layer := parts(t, img)
	raw, err := img.RawManifest()
	if err != nil {
		t.Fatal(err)
	}
	endless := func(w http.ResponseWriter) {
		for zeros := make([]byte, 1<<20); ; {
			if _, err := w.Write(zeros); err != nil {
				return
			}
		}
	}
	status := func(code int) func(http.ResponseWriter) {
		return func(w http.ResponseWriter) { http.Error(w, "from the registry: "+strings.Repeat("\x1b", 10), code) }
	}
	text := func(s string) func(http.ResponseWriter) {
		return func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", "application/vnd.oci.image.manifest.v1+json")
			io.WriteString(w, s)
		}
	}
	for name, test := range map[string]struct {
		path   string
		answer func(http.ResponseWriter)
		kind   fault.Kind
	}{
		"another manifest":      {"/manifests/" + manifest.String(), text(string(raw) + " "), fault.Unavailable},
		"no manifest":           {"/manifests/", text("<html>"), fault.Unavailable},
		"endless manifest":      {"/manifests/", endless, fault.Unavailable},
		"credentials needed":    {"/manifests/", status(401), fault.Denied},
		"forbidden":             {"/manifests/", status(403), fault.Denied},
		"teapot":                {"/manifests/", status(418), fault.Unavailable},
		"another configuration": {config.String(), text("{}"), fault.Unavailable},
		"endless configuration": {config.String(), endless, fault.Invalid},
		"another layer":         {layer.String(), text("x"), fault.Unavailable},
		"endless layer":         {layer.String(), endless, fault.Invalid},
		"no layer":              {layer.String(), status(404), fault.NotFound},
	} {
		t.Run(name, func(t *testing.T) {
			reg := serve(t)
			reg.push(t, "name:tag", img)
			reg.answer(func(w http.ResponseWriter, r *http.Request) bool {
				if !strings.Contains(r.URL.Path, test.path) || r.Method != http.MethodGet {
					return false
				}
				test.answer(w)
				return true
			})
			s, store := open(t, image.Options{Registry: reg})
			ref := reg.host + "/name@" + manifest.String()
			refused(t, s, store, ref, test.kind)
			if _, _, err := s.Get(context.Background(), ref); err != nil && strings.Contains(err.Error(), "\x1b") {
				t.Errorf("the registry's text is passed on: %q", err)
			}
		})
	}
}

// A registry that asks for a token gets one that anybody gets, and never what this host
// keeps for Docker.
func TestAnonymous(t *testing.T) {
	reg := serve(t)
	img := holding(t, "x")
	reg.push(t, "name:tag", img)
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("DOCKER_CONFIG", home)
	t.Setenv("REGISTRY_AUTH_FILE", filepath.Join(home, "config.json"))
	auth, err := json.Marshal(map[string]any{"auths": map[string]any{reg.host: map[string]string{"auth": "dXNlcjpzZWNyZXQ="}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(home, "config.json"), auth, 0o600); err != nil {
		t.Fatal(err)
	}
	var tokens atomic.Int32
	reg.answer(func(w http.ResponseWriter, r *http.Request) bool {
		switch got := r.Header.Get("Authorization"); {
		case got != "" && got != "Bearer anonymous":
			t.Errorf("%s: credentials were sent: %q", r.URL, got)
		case r.URL.Path == "/token":
			tokens.Add(1)
			io.WriteString(w, `{"token":"anonymous"}`)
			return true
		case got == "":
			w.Header().Set("WWW-Authenticate", `Bearer realm="http://`+reg.host+`/token",service="x"`)
			w.WriteHeader(http.StatusUnauthorized)
			return true
		}
		return false
	})
	s, _ := open(t, image.Options{Registry: reg})
	if got := get(t, s, reg.host+"/name:tag"); read(t, got)["which"].Content != "x" {
		t.Errorf("got %+v", got)
	}
	if tokens.Load() == 0 {
		t.Error("no token was asked for")
	}
}

// roundTripper decides what may be asked.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// Every request goes through the caller's transport, those that a redirect leads to as well,
// and nothing goes over a network in the clear.
func TestTransportDecides(t *testing.T) {
	reg := serve(t)
	reg.push(t, "name:tag", holding(t, "x"))
	reg.answer(func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.Contains(r.URL.Path, "/blobs/") || r.Method != http.MethodGet {
			return false
		}
		http.Redirect(w, r, "https://blobs.example"+r.URL.Path, http.StatusTemporaryRedirect)
		return true
	})
	denied := fault.New(fault.Denied, "%s is denied", "blobs.example").WithRule("the rule")
	s, store := open(t, image.Options{Registry: roundTripper(func(r *http.Request) (*http.Response, error) {
		if r.URL.Hostname() == "blobs.example" {
			return nil, denied
		}
		return reg.RoundTrip(r)
	})})
	refused(t, s, store, reg.host+"/name:tag", fault.Denied, "blobs.example is denied")
	_, _, err := s.Get(context.Background(), reg.host+"/name:tag")
	var f *fault.Error
	if !errors.As(err, &f) || f.Rule != "the rule" {
		t.Errorf("the rule is lost: %v", err)
	}

	var asked atomic.Int32
	s, store = open(t, image.Options{Registry: roundTripper(func(r *http.Request) (*http.Response, error) {
		if r.URL.Scheme != "https" {
			asked.Add(1)
		}
		return nil, errors.New("nobody is there")
	})})
	refused(t, s, store, "10.0.0.1:5000/name:tag", fault.Denied, "without encryption")
	if asked.Load() != 0 {
		t.Error("a registry was asked in the clear")
	}
}

// A Get ends when its context does, also in the middle of a layer.
func TestCancelled(t *testing.T) {
	reg := serve(t)
	img := holding(t, "x")
	_, _, layer := parts(t, img)
	reg.push(t, "name:tag", img)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	reg.answer(func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.Contains(r.URL.Path, layer.String()) {
			return false
		}
		w.Write([]byte{0x1f})
		w.(http.Flusher).Flush()
		cancel()
		<-r.Context().Done()
		return true
	})
	s, store := open(t, image.Options{Registry: reg})
	before := stored(t, store)
	if _, _, err := s.Get(ctx, reg.host+"/name:tag"); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if after := stored(t, store); strings.Join(before, "\n") != strings.Join(after, "\n") {
		t.Errorf("the store has %q", after)
	}
}
