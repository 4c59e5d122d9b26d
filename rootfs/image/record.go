//go:build linux

package image

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"tendril/rootfs"
)

// Record says what an unpacked image is.
type Record struct {
	Form        string   `json:"form"`        // of the unpacked image; another one is made anew
	Digest      string   `json:"digest"`      // "sha256:" and 64 hexadecimal digits, see [Store.Resolve]
	Env         []string `json:"env"`         // NAME=VALUE, each name once
	Volumes     []string `json:"volumes"`     // declared by the image, sorted; they are not made
	Healthcheck bool     `json:"healthcheck"` // declared by the image; it is not run
	Entries     int      `json:"entries"`     // names in the tree, the root included
	Size        int64    `json:"size"`        // of the EROFS image, bytes
	LeftOut     LeftOut  `json:"left_out"`
}

// form is what an unpacked image depends on beside the image's own bytes. The
// first number changes with this package.
func form(user rootfs.User) string {
	return fmt.Sprintf("1 %d:%d %s %s", user.UID, user.GID, user.Name, user.Home)
}

// Bounds on what a configuration says.
const (
	maxEnv      = 1000
	maxEnvBytes = 128 << 10
	maxVolumes  = 1000
	maxRecord   = 1 << 20 // bytes of a record
)

// environment returns the variables of a configuration, each name once: the last
// one counts. What is no variable is counted.
func environment(given []string) (env []string, bad int, err error) {
	if len(given) > maxEnv {
		return nil, 0, fmt.Errorf("it has %d variables, at most %d are taken", len(given), maxEnv)
	}
	at, size := map[string]int{}, 0
	for _, v := range given {
		name, _, ok := strings.Cut(v, "=")
		if !ok || !isVariable(v) || name == "" || strings.ContainsAny(name, " \t\n") {
			bad++
			continue
		}
		if size += len(v); size > maxEnvBytes {
			return nil, 0, fmt.Errorf("its variables have more than %d bytes", maxEnvBytes)
		}
		if i, ok := at[name]; ok {
			env[i] = v
			continue
		}
		at[name] = len(env)
		env = append(env, v)
	}
	return env, bad, nil
}

func isVariable(v string) bool { return strings.IndexByte(v, 0) < 0 }

// describe takes from a configuration what is kept of it.
func (r *Record) describe(c *v1.ConfigFile) error {
	var err error
	if r.Env, r.LeftOut.Env, err = environment(c.Config.Env); err != nil {
		return err
	}
	if len(c.Config.Volumes) > maxVolumes {
		return fmt.Errorf("it declares %d volumes, at most %d are taken", len(c.Config.Volumes), maxVolumes)
	}
	for path := range c.Config.Volumes {
		if len(path) > maxPath {
			return fmt.Errorf("it declares a volume with a path of %d bytes", len(path))
		}
		r.Volumes = append(r.Volumes, path)
	}
	slices.Sort(r.Volumes)
	if h := c.Config.Healthcheck; h != nil {
		r.Healthcheck = len(h.Test) > 0 && h.Test[0] != "NONE"
	}
	return nil
}

// write writes the record to a new file in a directory.
func (r *Record) write(dir string) error {
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if len(data) > maxRecord {
		return fmt.Errorf("what the image says of itself has %d bytes, at most %d are kept", len(data), maxRecord)
	}
	f, err := os.OpenFile(filepath.Join(dir, recordFile), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Sync(), f.Close())
}

// readRecord reads the record of a directory.
func readRecord(dir string) (Record, error) {
	f, err := os.Open(filepath.Join(dir, recordFile))
	if err != nil {
		return Record{}, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxRecord+1))
	if err != nil {
		return Record{}, err
	}
	return parseRecord(data)
}

// parseRecord takes what [Record.write] wrote, and nothing else.
func parseRecord(data []byte) (Record, error) {
	if len(data) > maxRecord {
		return Record{}, fmt.Errorf("the record has more than %d bytes", maxRecord)
	}
	var r Record
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&r); err != nil {
		return Record{}, fmt.Errorf("the record: %w", err)
	}
	if again, err := json.Marshal(&r); err != nil || !bytes.Equal(again, data) {
		return Record{}, errors.New("the record is not in its own form")
	}
	env, bad, err := environment(r.Env)
	switch {
	case err != nil:
		return Record{}, fmt.Errorf("the record: %w", err)
	case bad > 0 || len(env) != len(r.Env):
		return Record{}, errors.New("the record has variables that are none")
	case !isDigest(r.Digest):
		return Record{}, fmt.Errorf("the record is of %.100q, which is no digest", r.Digest)
	case r.Entries < 1 || r.Size < 1 || min(r.LeftOut.Devices, r.LeftOut.Setuid, r.LeftOut.Xattrs, r.LeftOut.Env) < 0:
		return Record{}, errors.New("the record has a number that is out of range")
	}
	return r, nil
}

// isDigest reports whether s is a SHA-256 digest in its one form.
func isDigest(s string) bool {
	h, err := v1.NewHash(s)
	return err == nil && h.Algorithm == "sha256" && h.String() == s
}
