//go:build linux

package stem

import (
	"context"
	"fmt"
	"os"
	"time"

	"tendril/fault"
	"tendril/ledger"
	"tendril/pollen"
)

// Presented is what a caller proves itself with. Nothing else that a caller says
// about itself is looked at.
type Presented struct {
	proof string // how the uid is known, in the ledger's words
	uid   int
	token *string // nil: none was presented
}

// ByProcess is the caller in this process: whoever owns it.
func ByProcess() Presented { return Presented{proof: ledger.ByProcess, uid: os.Geteuid()} }

// ByPeer is the caller at the other end of a local socket, whose uid the kernel
// vouches for (SO_PEERCRED, unix(7)).
func ByPeer(uid int) Presented { return Presented{proof: ledger.ByPeer, uid: uid} }

// WithToken is the caller with a token. From then on only the token counts: a bad
// one does not fall back to what the uid alone would have proven.
func (p Presented) WithToken(token string) Presented {
	p.token = &token
	return p
}

// Actor is who asks, once that is proven. The zero Actor is nobody.
type Actor struct {
	name   pollen.Name
	pollen *pollen.Record // nil for the Botanist
	proof  string
	uid    int
}

// Name is the actor's name in records.
func (a Actor) Name() string { return string(a.name) }

// Botanist reports whether it is the one who owns the control plane.
func (a Actor) Botanist() bool { return a.name == pollen.Botanist }

func (a Actor) String() string {
	if a.name == "" {
		return fmt.Sprintf("nobody (uid %d)", a.uid)
	}
	return string(a.name)
}

// authenticate says who presents. With an error the Actor is who it would have been,
// as far as that is known.
func (s *Stem) authenticate(ctx context.Context, p Presented) (Actor, error) {
	actor := Actor{proof: ledger.ByNothing, uid: p.uid}
	if p.token == nil {
		// The owner of the control plane could rewrite it as well as ask.
		if p.uid != s.owner {
			return actor, fault.New(fault.Denied, "uid %d owns nothing here and presents no token", p.uid).
				WithRule("without a token, only the owner of the control plane is somebody").
				WithHint("present the token of a Pollen: --token-file FILE")
		}
		actor.name, actor.proof = pollen.Botanist, p.proof
		return actor, nil
	}
	token, err := pollen.ParseToken(*p.token)
	if err != nil {
		return actor, err
	}
	record, err := s.state.PollenByDigest(ctx, token.Digest())
	if fault.Is(err, fault.NotFound) {
		return actor, fault.New(fault.Denied, "the token is of no Pollen that was issued here, or was rotated since").
			WithRule("a token is good where it was issued, until it is rotated").
			WithHint("ask the Botanist for another token: tendril pollen rotate NAME")
	}
	if err != nil {
		return actor, err
	}
	actor.name, actor.pollen, actor.proof = record.Name, &record, ledger.ByToken
	return actor, record.Check(time.Now(), &p.uid)
}
