package client

import (
	"net"
	"os"
	"path/filepath"
	"slices"

	"tendril/fault"
	"tendril/site"
)

const tokenRule = "a token is sent to the Stem alone: to root, to this account, or to the owner of the socket's directory"

// checkWay says who may serve on a socket that a token is sent to, and refuses one
// whose place others could take.
func checkWay(socket string) (trusted []int, err error) {
	if !filepath.IsAbs(socket) || filepath.Clean(socket) != socket { // "..", behind a symbolic link, is elsewhere
		return nil, fault.New(fault.Invalid, "the token was not sent: %q is not a clean absolute path", socket)
	}
	owner, err := site.CheckWay(filepath.Dir(socket))
	if err != nil {
		return nil, fault.New(fault.Denied, "the token was not sent: the directory of the socket: %w", err).
			WithRule(tokenRule).
			WithHint("give the socket's real path, in a directory that only the Stem's account can write")
	}
	return []int{0, os.Geteuid(), owner}, nil
}

// CheckServing says why clients do not send a token to this process at a socket, others
// being whether accounts but this one may connect at all; nil if they do.
func CheckServing(socket string, others bool) error {
	owner, err := site.CheckWay(filepath.Dir(socket))
	if err != nil {
		return fault.New(fault.Denied, "no client sends a token to %s: %w", socket, err).
			WithRule(tokenRule).
			WithHint("serve in a directory that only this account can write")
	}
	if self := os.Geteuid(); others && self != 0 && self != owner {
		return fault.New(fault.Denied, "no client of another account sends a token to %s: uid %d serves there, and the directory is uid %d's", socket, self, owner).
			WithRule(tokenRule).
			WithHint("serve in a directory of this account that the others can enter")
	}
	return nil
}

// checkPeer refuses a server that runs as somebody else.
func checkPeer(conn net.Conn, socket string, trusted []int) error {
	uid, err := peerUID(conn)
	if err != nil {
		return fault.New(fault.Denied, "the token was not sent: who serves at %s cannot be known: %w", socket, err).
			WithRule(tokenRule)
	}
	if site.Unmapped(uid) { // and so would be the uid of anybody else
		return fault.New(fault.Denied, "the token was not sent: the uid that serves at %s has no number in this user namespace", socket).
			WithRule(tokenRule).
			WithHint("run tendril outside of the user namespace, or map the Stem's uid into it")
	}
	if !slices.Contains(trusted, uid) {
		return fault.New(fault.Denied, "the token was not sent: uid %d serves at %s", uid, socket).
			WithRule(tokenRule).
			WithHint("make sure that --socket and TENDRIL_SOCKET name the Stem's socket")
	}
	return nil
}
