package ledger

import (
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"tendril/fault"
)

// LargestCheckpoint bounds a signed checkpoint, in bytes: one signature takes about 300;
// the rest is for signatures that others add, as witnesses do.
const LargestCheckpoint = 8 << 10

// Checkpoint is the state of a ledger at one size. Signed, it is a note
// (golang.org/x/mod/sumdb/note) in the format c2sp.org/tlog-checkpoint.
type Checkpoint struct {
	Origin string    `json:"origin"`
	Size   int64     `json:"size"` // rows
	Root   tlog.Hash `json:"root"` // of the tree over them (RFC 6962, section 2.1)
}

// text is the part of a note that is signed.
func (c Checkpoint) text() string {
	return c.Origin + "\n" + strconv.FormatInt(c.Size, 10) + "\n" + c.Root.String() + "\n"
}

// ReadCheckpoint reads a signed checkpoint without checking its signature.
func ReadCheckpoint(signed []byte) (Checkpoint, error) {
	if len(signed) > LargestCheckpoint {
		return Checkpoint{}, fault.New(fault.Invalid, "a checkpoint of %d bytes is larger than %d", len(signed), LargestCheckpoint)
	}
	_, err := note.Open(signed, note.VerifierList())
	var unverified *note.UnverifiedNoteError
	if !errors.As(err, &unverified) {
		return Checkpoint{}, notACheckpoint("%w", err)
	}
	return parseText(unverified.Note.Text)
}

// OpenCheckpoint reads a signed checkpoint and checks that the key signed it. Signatures
// of other keys are ignored.
func OpenCheckpoint(signed []byte, verifierKey string) (Checkpoint, error) {
	c, err := ReadCheckpoint(signed)
	if err != nil {
		return Checkpoint{}, err
	}
	verifier, err := verifierOf(verifierKey, c.Origin)
	if err != nil {
		return Checkpoint{}, err
	}
	opened, err := note.Open(signed, note.VerifierList(verifier))
	if err != nil {
		return Checkpoint{}, fault.New(fault.Invalid, "the checkpoint of %d rows is not signed with the key %s: %w", c.Size, verifierKey, err).
			WithHint("use the key that was kept with it; if that is this one, the checkpoint was changed")
	}
	// The decoder of package note takes any value of the bits that pad a base64 text.
	for _, signature := range opened.Sigs {
		if _, err := base64.StdEncoding.Strict().DecodeString(signature.Base64); err != nil {
			return Checkpoint{}, notACheckpoint("its signature is not spelled as signatures are")
		}
	}
	return c, nil
}

func parseText(text string) (Checkpoint, error) {
	lines := strings.Split(text, "\n")
	if len(lines) != 4 || lines[3] != "" {
		return Checkpoint{}, notACheckpoint("it does not have the three lines origin, size and root")
	}
	c := Checkpoint{Origin: lines[0]}
	if err := checkOrigin(c.Origin); err != nil {
		return Checkpoint{}, err
	}
	var err error
	if c.Size, err = strconv.ParseInt(lines[1], 10, 64); err != nil || c.Size < 1 {
		return Checkpoint{}, notACheckpoint("%.40q is not a number of rows", lines[1])
	}
	if c.Root, err = tlog.ParseHash(lines[2]); err != nil {
		return Checkpoint{}, notACheckpoint("%.80q is not a root", lines[2])
	}
	if c.text() != text {
		return Checkpoint{}, notACheckpoint("its size or its root is not spelled as they are")
	}
	return c, nil
}

func notACheckpoint(format string, args ...any) error {
	return fault.New(fault.Invalid, "it is not a checkpoint: "+format, args...).
		WithHint("a checkpoint is what `tendril ledger checkpoint` prints, byte for byte")
}

// checkOrigin takes what both a key's name and a checkpoint's first line can hold.
func checkOrigin(origin string) error {
	bad := strings.IndexFunc(origin, func(c rune) bool { return c <= ' ' || c > '~' || c == '+' })
	if origin == "" || len(origin) > mostOrigin || bad >= 0 {
		return fault.New(fault.Invalid, "%.150q is not the origin of a ledger", origin)
	}
	return nil
}

// Key signs checkpoints of one origin. It is safe for concurrent use.
type Key struct {
	signer   note.Signer
	verifier string
	digests  [sha256.Size]byte // the key of Digest
}

// NewKey makes a random key for an origin. secret is what [ParseKey] takes: it is to be
// kept where only the Stem can read it, and never to be shown.
func NewKey(origin string) (key Key, secret string, err error) {
	if err := checkOrigin(origin); err != nil {
		return Key{}, "", err
	}
	secret, _, err = note.GenerateKey(rand.Reader, origin)
	if err != nil {
		return Key{}, "", fault.New(fault.Internal, "make a key for the ledger: %w", err)
	}
	key, err = ParseKey(secret)
	return key, secret, err
}

// errKey holds nothing of the text that was no key: it may be most of a secret.
var errKey = fault.New(fault.Invalid, "it does not hold the signing key of a ledger")

// ParseKey reads a secret that [NewKey] returned.
func ParseKey(secret string) (Key, error) {
	signer, err := note.NewSigner(secret)
	if err != nil || checkOrigin(signer.Name()) != nil {
		return Key{}, errKey
	}
	// "PRIVATE+KEY+" name "+" hash "+" base64 of the algorithm and the seed. Only the
	// last part may hold another plus sign, and NewSigner has checked the whole.
	seed, err := base64.StdEncoding.DecodeString(strings.SplitN(secret, "+", 5)[4])
	if err != nil || len(seed) != 1+ed25519.SeedSize {
		return Key{}, errKey
	}
	public := ed25519.NewKeyFromSeed(seed[1:]).Public().(ed25519.PublicKey)
	verifier, err := note.NewEd25519VerifierKey(signer.Name(), public)
	if err != nil {
		return Key{}, errKey
	}
	return Key{signer, verifier, sha256.Sum256([]byte("tendril ledger digests\n" + secret))}, nil
}

// Digest names data that may be short enough to be guessed, such as what a request asked
// for: an HMAC-SHA-256 (RFC 2104) under a key that is derived from the signing key's. Who
// holds that key can check it, and nobody else can try what it may have been of.
func (k Key) Digest(data []byte) string {
	mac := hmac.New(sha256.New, k.digests[:])
	mac.Write(data)
	return "hmac-sha256:" + hex.EncodeToString(mac.Sum(nil))
}

// Origin is the origin of the ledger that the key signs for.
func (k Key) Origin() string { return k.signer.Name() }

// Verifier is the public half, in the form that package note reads: anybody may know it.
func (k Key) Verifier() string { return k.verifier }

// Opening is what the first row of the key's ledger says.
func (k Key) Opening() *Opening {
	return &Opening{Format: Format, Origin: k.Origin(), Key: k.Verifier()}
}

// Sign returns the signed checkpoint of the key's ledger at one size.
func (k Key) Sign(size int64, root tlog.Hash) ([]byte, error) {
	c := Checkpoint{Origin: k.Origin(), Size: size, Root: root}
	signed, err := note.Sign(&note.Note{Text: c.text()}, k.signer)
	if err != nil {
		return nil, fault.New(fault.Internal, "sign a checkpoint of %d rows: %w", size, err)
	}
	return signed, nil
}

// verifierOf reads a verifier key and refuses one of another origin.
func verifierOf(key, origin string) (note.Verifier, error) {
	verifier, err := note.NewVerifier(key)
	if err != nil {
		return nil, notAKey(key, err)
	}
	if verifier.Name() != origin {
		return nil, fault.New(fault.Invalid, "the key is that of %.150q, and the ledger is %.150q", verifier.Name(), origin)
	}
	return verifier, nil
}

func notAKey(key string, err error) error {
	return fault.New(fault.Invalid, "%.150q is not the key of a ledger: %w", key, err).
		WithHint("it is what `tendril ledger key` prints")
}
