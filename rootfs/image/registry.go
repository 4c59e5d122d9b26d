//go:build linux

package image

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"tendril/fault"
)

// registry is one repository of a registry, asked anonymously.
type registry struct {
	repo   name.Repository
	puller *remote.Puller
}

func newRegistry(ref name.Reference, t http.RoundTripper) (*registry, error) {
	if t == nil {
		return nil, fault.New(fault.Denied, "registries may not be asked here").
			WithHint("name an OCI layout or an archive of docker save, or the digest of an image that is in the store")
	}
	puller, err := remote.NewPuller(remote.WithTransport(encrypted{t}), remote.WithAuth(authn.Anonymous), remote.WithJobs(1))
	if err != nil {
		return nil, err
	}
	return &registry{ref.Context(), puller}, nil
}

// encrypted refuses a request that others could read and answer, but to this host.
type encrypted struct{ http.RoundTripper }

func (e encrypted) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Scheme != "https" && !isLoopback(r.URL) {
		return nil, fault.New(fault.Denied, "the registry is asked for %s without encryption", r.URL.Redacted())
	}
	return e.RoundTripper.RoundTrip(r)
}

func isLoopback(u *url.URL) bool {
	ip := net.ParseIP(u.Hostname())
	return ip.IsLoopback() || u.Hostname() == "localhost"
}

func (r *registry) locate(ctx context.Context, ref name.Reference) (*located, error) {
	d, err := r.puller.Get(ctx, ref)
	if err != nil {
		return nil, r.explain(ref, err)
	}
	return follow(ctx, &met{r, d}, d.Descriptor)
}

// met is a registry of which one document was fetched already.
type met struct {
	*registry
	first *remote.Descriptor
}

func (m *met) document(ctx context.Context, d v1.Descriptor) ([]byte, error) {
	if d.Digest == m.first.Digest {
		return m.first.Manifest, small(m.first.Manifest)
	}
	ref := m.repo.Digest(d.Digest.String())
	fetched, err := m.puller.Get(ctx, ref)
	if err != nil {
		return nil, m.explain(ref, err)
	}
	return fetched.Manifest, small(fetched.Manifest)
}

func small(manifest []byte) error {
	if len(manifest) > maxManifest {
		return fault.New(fault.Invalid, "the manifest of the image has %d bytes, at most %d are taken", len(manifest), maxManifest)
	}
	return nil
}

func (r *registry) blob(ctx context.Context, d v1.Descriptor) (io.ReadCloser, error) {
	ref := r.repo.Digest(d.Digest.String())
	layer, err := r.puller.Layer(ctx, ref)
	if err != nil {
		return nil, r.explain(ref, err)
	}
	body, err := layer.Compressed()
	if err != nil {
		return nil, r.explain(ref, err)
	}
	return body, nil
}

// explain makes a fault of what a registry, or the way to it, answered. The text of
// a registry is not passed on.
func (r *registry) explain(ref name.Reference, err error) error {
	var known *fault.Error
	var answer *transport.Error
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case errors.As(err, &known):
		return known
	case !errors.As(err, &answer):
		return fault.New(fault.Unavailable, "asking the registry for %s: %w", ref.Identifier(), err)
	case answer.StatusCode == http.StatusNotFound:
		return fault.New(fault.NotFound, "the registry has no %s", ref.Identifier())
	case answer.StatusCode == http.StatusUnauthorized || answer.StatusCode == http.StatusForbidden:
		return fault.New(fault.Denied, "the registry gives it to nobody without credentials (status %d)", answer.StatusCode).
			WithHint("registries are asked anonymously: save the image to a file, and name that")
	}
	return fault.New(fault.Unavailable, "the registry answers %s with status %d", ref.Identifier(), answer.StatusCode)
}
