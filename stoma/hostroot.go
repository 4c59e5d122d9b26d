package stoma

// HostRoot says what the guest half of a run on the host itself makes its root of: what the
// host has, but for the proc file system, and what is laid over that.
type HostRoot struct {
	Dir  string   // an empty directory, on which it is put together
	Bare []string // directories that show nothing of what the host has in them
	Laid []Laid
}

// Laid is a file or directory of the host that appears at another path.
type Laid struct {
	Source, Target string
	Writable       bool
}

// Message is one message for [ReadMessage].
func (r HostRoot) Message() []byte {
	b := AppendList(AppendBytes(nil, r.Dir), r.Bare)
	for _, l := range r.Laid {
		var writable uint64
		if l.Writable {
			writable = 1
		}
		b = AppendUint(AppendBytes(AppendBytes(b, l.Source), l.Target), writable)
	}
	return b
}

// ParseHostRoot reads what [HostRoot.Message] made.
func ParseHostRoot(f *Fields) (HostRoot, error) {
	r := HostRoot{Dir: f.Text(), Bare: f.List()}
	for len(f.rest) > 0 {
		r.Laid = append(r.Laid, Laid{Source: f.Text(), Target: f.Text(), Writable: f.UintMax(1) == 1})
	}
	return r, f.End()
}
