package ledger_test

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"tendril/fault"
	"tendril/ledger"
)

func sign(t testing.TB, key ledger.Key, size int64, root tlog.Hash) []byte {
	t.Helper()
	signed, err := key.Sign(size, root)
	if err != nil {
		t.Fatal(err)
	}
	return signed
}

func TestACheckpointIsASignedNote(t *testing.T) {
	key := newKey(t)
	root := tlog.RecordHash([]byte("x"))
	signed := sign(t, key, 41, root)
	want := origin + "\n41\n" + root.String() + "\n\n— " + origin + " "
	if !strings.HasPrefix(string(signed), want) {
		t.Errorf("got %q, want %q and a signature", signed, want)
	}
	verifier, err := note.NewVerifier(key.Verifier())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := note.Open(signed, note.VerifierList(verifier)); err != nil {
		t.Errorf("package note does not take it: %v", err)
	}
	c, err := ledger.OpenCheckpoint(signed, key.Verifier())
	if err != nil || c != (ledger.Checkpoint{Origin: origin, Size: 41, Root: root}) {
		t.Errorf("got %v, %v", c, err)
	}
	if read, err := ledger.ReadCheckpoint(signed); err != nil || read != c {
		t.Errorf("got %v, %v", read, err)
	}
}

// TestAWitnessMaySignToo: a signature that somebody adds takes nothing away.
func TestAWitnessMaySignToo(t *testing.T) {
	key := newKey(t)
	signed := sign(t, key, 41, tlog.Hash{})
	secret, _, err := note.GenerateKey(rand.Reader, "witness.example.org")
	if err != nil {
		t.Fatal(err)
	}
	signer, err := note.NewSigner(secret)
	if err != nil {
		t.Fatal(err)
	}
	verifier, err := note.NewVerifier(key.Verifier())
	if err != nil {
		t.Fatal(err)
	}
	opened, err := note.Open(signed, note.VerifierList(verifier))
	if err != nil {
		t.Fatal(err)
	}
	both, err := note.Sign(opened, signer)
	if err != nil {
		t.Fatal(err)
	}
	if c, err := ledger.OpenCheckpoint(both, key.Verifier()); err != nil || c.Size != 41 {
		t.Errorf("got %v, %v", c, err)
	}
}

func TestAnotherKeyIsRefused(t *testing.T) {
	key, other := newKey(t), newKey(t)
	elsewhere, _, err := ledger.NewKey("tendril/elsewhere")
	if err != nil {
		t.Fatal(err)
	}
	signed := sign(t, key, 41, tlog.Hash{})
	for _, verifier := range []string{other.Verifier(), elsewhere.Verifier(), "", "x", key.Verifier() + "x", key.Verifier()[1:]} {
		if c, err := ledger.OpenCheckpoint(signed, verifier); !fault.Is(err, fault.Invalid) {
			t.Errorf("%s took %v (%v)", verifier, c, err)
		}
	}
}

// TestEveryBitOfACheckpointCounts changes each bit of a signed checkpoint, and gives each
// other value to some of its bytes.
func TestEveryBitOfACheckpointCounts(t *testing.T) {
	key := newKey(t)
	signed := sign(t, key, 41, tlog.RecordHash([]byte("x")))
	try := func(i int, value byte) {
		changed := bytes.Clone(signed)
		changed[i] = value
		if c, err := ledger.OpenCheckpoint(changed, key.Verifier()); err == nil {
			t.Errorf("byte %d was changed from %q to %q, and it was taken: %v", i, signed[i], value, c)
		}
	}
	for i := range signed {
		for bit := range 8 {
			try(i, signed[i]^1<<bit)
		}
		if i%16 == 0 || i > len(signed)-8 { // the end has the padding of the signature
			for difference := 1; difference < 256; difference++ {
				try(i, signed[i]^byte(difference))
			}
		}
	}
	for i := range signed {
		if _, err := ledger.OpenCheckpoint(append(bytes.Clone(signed[:i]), signed[i+1:]...), key.Verifier()); err == nil {
			t.Errorf("byte %d was removed, and it was taken", i)
		}
		if _, err := ledger.ReadCheckpoint(signed[:i]); err == nil {
			t.Errorf("it was cut after %d bytes, and it was taken", i)
		}
	}
}

// signText signs a text as it is, with a key that is given as its secret.
func signText(t *testing.T, secret, text string) []byte {
	t.Helper()
	signer, err := note.NewSigner(secret)
	if err != nil {
		t.Fatal(err)
	}
	signed, err := note.Sign(&note.Note{Text: text}, signer)
	if err != nil {
		t.Fatal(err)
	}
	return signed
}

// TestASignatureDoesNotMakeACheckpoint: what the key signed is still read strictly.
func TestASignatureDoesNotMakeACheckpoint(t *testing.T) {
	key, secret, err := ledger.NewKey(origin)
	if err != nil {
		t.Fatal(err)
	}
	root := tlog.Hash{}.String()
	for name, text := range map[string]string{
		"two lines":            origin + "\n41\n",
		"a fourth line":        origin + "\n41\n" + root + "\nmore\n",
		"another order":        "41\n" + origin + "\n" + root + "\n",
		"no rows":              origin + "\n0\n" + root + "\n",
		"less than no rows":    origin + "\n-1\n" + root + "\n",
		"a leading zero":       origin + "\n041\n" + root + "\n",
		"a plus sign":          origin + "\n+41\n" + root + "\n",
		"too many rows":        origin + "\n9223372036854775808\n" + root + "\n",
		"a short root":         origin + "\n41\nAAAA\n" + root + "\n",
		"bits in the padding":  origin + "\n41\n" + strings.Replace(root, "A=", "B=", 1) + "\n",
		"no origin":            "\n41\n" + root + "\n",
		"an origin in words":   "the ledger\n41\n" + root + "\n",
		"the origin of others": "tendril/other\n41\n" + root + "\n",
	} {
		if c, err := ledger.OpenCheckpoint(signText(t, secret, text), key.Verifier()); !fault.Is(err, fault.Invalid) {
			t.Errorf("%s was taken as %v (%v)", name, c, err)
		}
	}
	good := signText(t, secret, origin+"\n41\n"+root+"\n")
	if _, err := ledger.OpenCheckpoint(good, key.Verifier()); err != nil {
		t.Errorf("what is right was refused: %v", err)
	}
	_, signature, _ := bytes.Cut(good, []byte("\n\n"))
	many := append(good, bytes.Repeat(signature, ledger.LargestCheckpoint/len(signature))...)
	if _, err := ledger.OpenCheckpoint(many, key.Verifier()); !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "larger than") {
		t.Errorf("many signatures: %v", err)
	}
}

func TestAKeyComesBackFromItsSecret(t *testing.T) {
	for range 20 { // a base64 text with a plus sign in it comes along soon
		key, secret, err := ledger.NewKey(origin)
		if err != nil {
			t.Fatal(err)
		}
		again, err := ledger.ParseKey(secret)
		if err != nil || again.Verifier() != key.Verifier() || again.Origin() != origin {
			t.Fatalf("%v, %v", again.Verifier(), err)
		}
		if _, err := ledger.OpenCheckpoint(sign(t, again, 1, tlog.Hash{}), key.Verifier()); err != nil {
			t.Error(err)
		}
		if shown := fmt.Sprintf("%v %+v %#v", key, key, key); strings.Contains(shown, strings.Split(secret, "+")[4]) {
			t.Error("a key shows its secret")
		}
		for i := range secret {
			changed := []byte(secret)
			changed[i] ^= 1
			if _, err := ledger.ParseKey(string(changed)); !fault.Is(err, fault.Invalid) || strings.Contains(err.Error(), secret[20:]) {
				t.Errorf("byte %d was changed: %v", i, err)
			}
		}
	}
	for _, bad := range []string{"", "secret", "PRIVATE+KEY+x", "PRIVATE+KEY+" + origin + "+00000000+AAAA"} {
		if _, err := ledger.ParseKey(bad); !fault.Is(err, fault.Invalid) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	for _, bad := range []string{"", "a b", "a+b", "a\n", "ü", strings.Repeat("a", 129)} {
		if _, _, err := ledger.NewKey(bad); !fault.Is(err, fault.Invalid) {
			t.Errorf("origin %q: %v", bad, err)
		}
	}
}

func FuzzReadCheckpoint(f *testing.F) {
	key := newKey(f)
	f.Add(sign(f, key, 41, tlog.Hash{}))
	f.Add(sign(f, key, 1<<62, tlog.RecordHash(nil)))
	f.Add([]byte("a\n1\n\n— a AAAAAAA=\n"))
	f.Fuzz(func(t *testing.T, signed []byte) {
		c, err := ledger.ReadCheckpoint(signed)
		if err != nil {
			if !fault.Is(err, fault.Invalid) {
				t.Errorf("%q: %v", signed, err)
			}
			return
		}
		want := fmt.Sprintf("%s\n%d\n%s\n\n— ", c.Origin, c.Size, c.Root)
		if !bytes.HasPrefix(signed, []byte(want)) {
			t.Errorf("%q was read as %v", signed, c)
		}
		if _, err := ledger.OpenCheckpoint(signed, newKey(t).Verifier()); err == nil {
			t.Error("a key that is a moment old signed it")
		}
	})
}
