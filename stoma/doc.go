// Package stoma is the one aperture in a Terrarium's wall: the wire format
// that both halves speak, and the host's half ([Client]). The guest's half is
// package stoma/guest.
//
// A [Session] multiplexes streams over one byte stream, whatever carries it.
// Each stream has its own credit, so a reader that stalls delays no other
// stream, and what a peer can make this side hold is bounded: at most
// [MaxStreams] streams a side, at most [MaxWindow] unread bytes each. Opens,
// credits and resets are sent before data, and data goes round robin, one frame
// at a time, so a signal never waits for a download.
//
// # What it promises
//
// The peer is hostile. Anything that is not exactly the format ends the session
// with a broken-boundary fault whose rule names what was violated. Memory stays
// bounded under flood, stall and lies about sizes. A truncated answer is an
// error, never a short success.
//
// # What it does not protect against
//
// What arrives in the right format is still a claim of the Sprout: an exit
// status, a record, a count. Limits and deadlines that must hold are enforced
// outside the wall. There is no encryption: the carrier is private to the two
// halves.
package stoma
