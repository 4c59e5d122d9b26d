// Package substrate is the Git repository that work is done on: Git in (a
// commit becomes a base image) and Git out (entries become one commit on a
// branch), and what a person does with the result (diff, accept, reject).
//
// It promises that nothing of a repository is executed or followed. Git runs
// with plumbing commands only, in bare directories of our own with a
// configuration of our own, and reads the caller's objects as an alternate.
// References, which Git would resolve by the caller's rules, are read and
// written here, beneath the repository's directory and through no symbolic
// link. A repository is changed in two ways only: a pack is added to its
// objects, and one reference is created, moved or removed.
//
// It does not protect a repository from its own owner: whoever owns it can
// change its objects while they are read. Every file and tree of a base image is
// checked against its object id, older history is not; what is imported is
// checked by Git, strictly.
package substrate
