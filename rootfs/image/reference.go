//go:build linux

package image

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"

	"tendril/fault"
)

// reference is where an image is asked for. Exactly one of the first four is set.
type reference struct {
	digest   string // of an image that is in the store
	layout   string // a directory
	archive  string // a file
	registry name.Reference

	tag string // of layout and archive; "" if none was given
}

const (
	layoutScheme  = "oci:"
	archiveScheme = "docker-archive:"
	forms         = "an image is named as oci:/DIRECTORY[:TAG], docker-archive:/FILE[:TAG], the path of either, REGISTRY/NAME:TAG, REGISTRY/NAME@sha256:… or, if it is in the store, sha256:…"
)

// isPath reports whether a reference without a scheme is a path: only what begins
// as one, so that a file that is called like an image does not stand in for it.
func isPath(ref string) bool {
	return ref == "." || ref == ".." || strings.HasPrefix(ref, "/") || strings.HasPrefix(ref, "./") || strings.HasPrefix(ref, "../")
}

func parseReference(ref string) (reference, error) {
	invalid := func(format string, args ...any) (reference, error) {
		return reference{}, fault.New(fault.Invalid, "image %.300q: "+format, append([]any{ref}, args...)...).WithHint(forms)
	}
	if len(ref) > maxPath || strings.ContainsFunc(ref, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return invalid("it is too long or holds control characters")
	}
	switch {
	case ref == "":
		return invalid("it names nothing")
	case strings.HasPrefix(ref, layoutScheme):
		return onDisk(ref, layoutScheme)
	case strings.HasPrefix(ref, archiveScheme):
		return onDisk(ref, archiveScheme)
	case isPath(ref):
		return onDisk(ref, "")
	case strings.HasPrefix(ref, "sha256:"):
		if !isDigest(ref) {
			return invalid("a digest is sha256: and 64 hexadecimal digits in lower case")
		}
		return reference{digest: ref}, nil
	}
	if host, _, found := strings.Cut(ref, "/"); !found || !strings.ContainsAny(host, ".:") && host != "localhost" {
		return invalid("it names no registry, and there is no default one")
	}
	parsed, err := name.ParseReference(ref, name.StrictValidation)
	if err != nil {
		return invalid("%w", err)
	}
	if d, ok := parsed.(name.Digest); ok && !isDigest(d.DigestStr()) {
		return invalid("its digest is not SHA-256")
	}
	return reference{registry: parsed}, nil
}

// onDisk parses a path with or without a tag. A colon may be part of the path.
func onDisk(ref, scheme string) (reference, error) {
	given := strings.TrimPrefix(ref, scheme)
	invalid := func(format string, args ...any) (reference, error) {
		return reference{}, fault.New(fault.Invalid, "image %.300q: "+format, append([]any{ref}, args...)...).WithHint(forms)
	}
	if !filepath.IsAbs(given) {
		return invalid("the path is not absolute")
	}
	path, tag := given, ""
	if i := strings.LastIndexByte(given, ':'); i > strings.LastIndexByte(given, '/') {
		whole, part := exists(given), exists(given[:i])
		switch {
		case whole && part:
			return invalid("both %s and %s are there: is %q a tag?", given, given[:i], given[i+1:])
		case !whole:
			path, tag = given[:i], given[i+1:]
		}
		if tag == "" && !whole {
			return invalid("its tag is empty")
		}
	}
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return reference{}, fault.New(fault.NotFound, "image %.300q: there is no %s", ref, path).WithHint(forms)
	}
	if err != nil {
		return reference{}, fault.New(fault.Unavailable, "image %.300q: %w", ref, err)
	}
	switch {
	case info.IsDir() && scheme != archiveScheme:
		if !exists(filepath.Join(path, layoutFile)) {
			return invalid("the directory has no file %s: it is no OCI layout", layoutFile)
		}
		return reference{layout: path, tag: tag}, nil
	case info.Mode().IsRegular() && scheme != layoutScheme:
		return reference{archive: path, tag: tag}, nil
	case scheme == layoutScheme:
		return invalid("an OCI layout is a directory")
	}
	return invalid("it is no regular file")
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
