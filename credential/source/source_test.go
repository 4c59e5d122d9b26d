//go:build linux

package source

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"filippo.io/age"
	"filippo.io/age/armor"
	"golang.org/x/sys/unix"

	"tendril/credential"
	"tendril/fault"
)

const honey = "h0neytoken-0f-sources"

// private is a directory that no other account can change, wherever tests run.
func private(t *testing.T) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func write(t *testing.T, path, text string, mode os.FileMode) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
	return path
}

// read reads by a Reader of its own, and checks of an error that it shows nothing.
func read(t *testing.T, s credential.Source) (string, error) {
	t.Helper()
	r := New()
	defer r.Close()
	secret, err := r.Read(t.Context(), credential.Named{Name: "model-api", Credential: credential.Credential{Source: s}})
	shown(t, err)
	if err != nil && (!fault.Is(err, fault.Unavailable) || !strings.HasPrefix(err.Error(), "the credential model-api cannot be read from ")) {
		t.Errorf("the refusal is %q", err)
	}
	text := string(secret.Bytes())
	secret.Close()
	return text, err
}

// shown fails if anything of an error, printed in any way, has the beginning of the
// honeytoken.
func shown(t *testing.T, err error) {
	t.Helper()
	for ; err != nil; err = errors.Unwrap(err) {
		text := fmt.Sprintf("%v %+v %#v %s %q %x", err, err, err, err, err, err)
		var f *fault.Error
		if errors.As(err, &f) {
			data, _ := json.Marshal(f)
			text += f.Detail + f.Hint + f.Rule + string(data)
		}
		for _, form := range []string{"h0ney", fmt.Sprintf("%x", "h0ney"), "aDBuZX", "AGE-SECRET"} {
			if strings.Contains(text, form) {
				t.Errorf("an error shows the secret: %s", text)
			}
		}
	}
}

func TestEnvironment(t *testing.T) {
	t.Setenv("TENDRIL_TEST_SECRET", honey)
	if got, err := read(t, credential.Source{Env: "TENDRIL_TEST_SECRET"}); err != nil || got != honey {
		t.Errorf("%q, %v", got, err)
	}
	for _, value := range []string{"", "h0ney", honey + "\n", honey + "\x00", honey + "\x7f", " " + honey, honey + " ", strings.Repeat(honey, 1000)} {
		if strings.Contains(value, "\x00") {
			continue // no environment holds it
		}
		t.Setenv("TENDRIL_TEST_SECRET", value)
		if got, err := read(t, credential.Source{Env: "TENDRIL_TEST_SECRET"}); err == nil {
			t.Errorf("%q is taken for %q", value, got)
		}
	}
	if _, err := read(t, credential.Source{Env: "TENDRIL_TEST_NOT_SET"}); err == nil {
		t.Error("a variable that is not set is read")
	}
}

func TestFile(t *testing.T) {
	path := filepath.Join(private(t), "secret")
	source := credential.Source{File: credential.Path(path)}
	for _, text := range []string{honey, honey + "\n", honey + "\r\n"} {
		write(t, path, text, 0o600)
		if got, err := read(t, source); err != nil || got != honey {
			t.Errorf("%q: %q, %v", text, got, err)
		}
	}
	longest := strings.Repeat("x", credential.LongestSecret)
	write(t, path, longest+"\r\n", 0o400)
	if got, err := read(t, source); err != nil || got != longest {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	os.Remove(path)
	for name, text := range map[string]string{
		"nothing": "", "a line end": "\n", "too little": "h0ney12\n", "two lines": honey + "\n" + honey, "two line ends": honey + "\n\n",
		"a NUL": honey + "\x00", "a carriage return": honey + "\rx", "a tab": honey + "\tx", "too much": longest + "x", "far too much": strings.Repeat(honey, 2000),
	} {
		write(t, path, text, 0o600)
		if got, err := read(t, source); err == nil {
			t.Errorf("%s: it is taken for %q", name, got)
		}
	}
}

func TestFileThatOthersReach(t *testing.T) {
	dir := private(t)
	path := filepath.Join(dir, "secret")
	source := credential.Source{File: credential.Path(path)}
	refused := func(name, want string) {
		t.Helper()
		if got, err := read(t, source); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	refused("none", "no such file")
	for _, mode := range []os.FileMode{0o640, 0o604, 0o620, 0o602, 0o610, 0o666} {
		write(t, path, honey, mode)
		refused(mode.String(), "open to other accounts")
	}
	os.Remove(path)
	write(t, filepath.Join(dir, "other"), honey, 0o600)
	if err := os.Symlink("other", path); err != nil {
		t.Fatal(err)
	}
	refused("a link", "symbolic link")
	os.Remove(path)
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	refused("a directory", "not a regular file")
	os.Remove(path)
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	refused("a FIFO", "not a regular file") // and nobody waits for its writer
	os.Remove(path)

	write(t, path, honey, 0o600)
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	refused("a directory that all can write", "other accounts can write")
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := read(t, source); err != nil {
		t.Errorf("this tests nothing: %v", err)
	}
	if os.Geteuid() == 0 {
		if err := os.Chown(path, 70707, 0); err != nil {
			t.Fatal(err)
		}
		refused("another's file", "belongs to uid 70707")
		if err := errors.Join(os.Chown(path, 0, 0), os.Chown(dir, 70707, 0)); err != nil {
			t.Fatal(err)
		}
		refused("another's directory", "belongs to uid 70707")
	}
}

// A rotation is in force at the next use.
func TestRotation(t *testing.T) {
	path := write(t, filepath.Join(private(t), "secret"), honey, 0o600)
	r := New()
	defer r.Close()
	c := credential.Named{Name: "c", Credential: credential.Credential{Source: credential.Source{File: credential.Path(path)}}}
	for i := range 3 {
		want := fmt.Sprintf("%s-%d", honey, i)
		write(t, path+".new", want, 0o600)
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
		got, err := r.Read(t.Context(), c)
		if err != nil || string(got.Bytes()) != want {
			t.Errorf("%q, %v", got.Bytes(), err)
		}
		got.Close()
	}
}

func TestAge(t *testing.T) {
	dir := private(t)
	own, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	other, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	identity := write(t, filepath.Join(dir, "identity"), "# created: today\n# public key: "+own.Recipient().String()+"\n"+own.String()+"\n", 0o600)
	seal := func(text string, armored bool, to ...age.Recipient) string {
		t.Helper()
		var out bytes.Buffer
		var into io.WriteCloser = nopCloser{&out}
		if armored {
			into = armor.NewWriter(&out)
		}
		w, err := age.Encrypt(into, to...)
		if err == nil {
			_, err = io.WriteString(w, text)
		}
		if err := errors.Join(err, w.Close(), into.Close()); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	path := filepath.Join(dir, "secret.age")
	source := func(identity string) credential.Source {
		return credential.Source{Age: credential.Age{File: credential.Path(path), Identity: credential.Path(identity)}}
	}
	for _, armored := range []bool{false, true} {
		write(t, path, seal(honey+"\n", armored, other.Recipient(), own.Recipient()), 0o644)
		if got, err := read(t, source(identity)); err != nil || got != honey {
			t.Errorf("armored %v: %q, %v", armored, got, err)
		}
	}
	refused := func(name, sealed, identity, want string) {
		t.Helper()
		if sealed != "" {
			write(t, path, sealed, 0o644)
		}
		if got, err := read(t, source(identity)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	good := seal(honey, false, own.Recipient())
	refused("for somebody else", seal(honey, false, other.Recipient()), identity, "cannot be decrypted")
	refused("not encrypted", honey, identity, "cannot be decrypted")
	refused("nothing", "\n", identity, "cannot be decrypted")
	refused("changed", good[:len(good)-1]+"x", identity, "changed after it was encrypted")
	refused("cut", good[:len(good)-1], identity, "changed after it was encrypted")
	refused("too short", seal("h0ney", false, own.Recipient()), identity, "fewer than 8")
	refused("too long", seal(strings.Repeat(honey, 1000), false, own.Recipient()), identity, "more than 16384 bytes")
	refused("no secret at all", strings.Repeat("x", longestSealed+1), identity, "more than 65536 bytes")
	refused("an identity that is none", good, write(t, filepath.Join(dir, "none"), honey, 0o600), "is not one of age")
	refused("a damaged identity", good, write(t, filepath.Join(dir, "damaged"), own.String()[:60]+honey, 0o600), "is not one of age")
	refused("an identity that others read", good, write(t, filepath.Join(dir, "open"), own.String(), 0o644), "open to other accounts")
	refused("no identity", good, filepath.Join(dir, "nowhere"), "no such file")
	if err := os.Chmod(path, 0o664); err != nil {
		t.Fatal(err)
	}
	refused("a file that others write", "", identity, "open to other accounts")
}

type nopCloser struct{ io.Writer }

func (nopCloser) Close() error { return nil }

func TestNoSource(t *testing.T) {
	_, err := New().Read(t.Context(), credential.Named{Name: "c"})
	if !fault.Is(err, fault.Unavailable) {
		t.Error(err)
	}
}
