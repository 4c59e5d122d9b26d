// Package hold keeps files that several processes share, by locks of flock(2),
// which end with the process that has them.
//
// A cached file is held by its users ([Open]) and evicted only when it has none
// ([Evict]). A scratch directory goes when its owner closes it, and is swept
// when the owner died ([Area]).
//
// It protects cooperating processes of one account from each other, and from
// what a crash leaves. It is no protection against anybody who may write there.
package hold
