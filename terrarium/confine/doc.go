// Package confine is what walls share that run as processes of this host: the limits of
// a Terrarium with their defaults, the control group and the processors that its
// processes are kept in, the look at what they use, and the record by which somebody who
// comes after a Stem that was killed finds and ends them.
//
// It promises that a process which is ended is the one that was recorded and none that
// has its pid by now. It keeps nothing inside a Terrarium: that is the wall's.
package confine
