//go:build linux

package guest

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"tendril/stoma"
)

// maxBase bounds the entries that are remembered: each takes about 100 bytes here.
const maxBase = 1 << 20

// baseDir is a directory as it was brought in.
type baseDir struct {
	entries []baseEntry // by name
}

type baseEntry struct {
	name  string
	what  inodeState
	below *baseDir // of a directory
}

// inodeState is what changes when somebody changes a file.
type inodeState struct {
	inode, size uint64
	change      unix.Timespec // st_ctim
	mode        uint32
}

func whatOf(st *unix.Stat_t) inodeState {
	return inodeState{st.Ino, uint64(st.Size), st.Ctim, st.Mode}
}

func (d *baseDir) find(name string) *baseEntry {
	if d == nil {
		return nil
	}
	i, ok := d.search(name)
	if !ok {
		return nil
	}
	return &d.entries[i]
}

func (d *baseDir) search(name string) (int, bool) {
	return slices.BinarySearchFunc(d.entries, name, func(e baseEntry, name string) int { return strings.Compare(e.name, name) })
}

var errBaseIsThere = errors.New("the base comes once, before anything else")

// plant unpacks the base into the empty workspace and remembers it. Times and modes are
// the tar's, so that Git inside finds what its index says.
func (sv *server) plant(st *stoma.Stream) error {
	p, ok := sv.workspace.(*plain)
	if !ok {
		return errors.New("this Terrarium's workspace was there when it was made")
	}
	sv.mu.Lock()
	late := sv.begun
	sv.begun = true
	sv.mu.Unlock()
	if late {
		return errBaseIsThere
	}
	base := &planter{top: &baseDir{}}
	if err := sv.sprout.do(func() error { return base.plant(p.dir, tar.NewReader(st)) }); err != nil {
		return err
	}
	used, _ := p.usage()
	p.baseSize.Store(used)
	p.base.Store(base.top)
	return nil
}

// planter unpacks one tar. A directory comes before what is in it. No process of the
// Sprout runs meanwhile.
type planter struct {
	top   *baseDir
	open  []opened // from the workspace down to where the last entry went
	count int
	last  unix.Timespec // change of whatever changed last
}

// opened is a directory that is being filled.
type opened struct {
	path  string // "" is the workspace, otherwise it ends in a slash
	fd    int
	here  *baseDir // nil: not remembered
	mtime time.Time
}

func (p *planter) plant(workspace int, t *tar.Reader) (err error) {
	fd, err := openDir(workspace, ".")
	if err != nil {
		return err
	}
	p.open = []opened{{fd: fd, here: p.top}}
	defer func() {
		for len(p.open) > 0 {
			err = errors.Join(err, p.leave())
		}
		if err == nil {
			settle(p.last)
		}
	}()
	for {
		h, err := t.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read the base: %w", err)
		}
		if err := p.entry(h, t); err != nil {
			return fmt.Errorf("put %q of the base into the workspace: %w", h.Name, err)
		}
	}
}

func (p *planter) entry(h *tar.Header, content io.Reader) error {
	name := strings.TrimSuffix(h.Name, "/")
	if name == "." {
		p.open[0].mtime = h.ModTime
		return nil
	}
	if p.count++; p.count > maxBase {
		return fmt.Errorf("the base has more than %d entries", maxBase)
	}
	dir, base := path.Split(name)
	if base == "" || base == "." || base == ".." || strings.IndexByte(base, 0) >= 0 {
		return errors.New("not a name")
	}
	for !strings.HasPrefix(dir, p.at().path) {
		if err := p.leave(); err != nil {
			return err
		}
	}
	if p.at().path != dir {
		return errors.New("its directory did not come before it")
	}
	return p.make(base, h, content)
}

func (p *planter) at() *opened { return &p.open[len(p.open)-1] }

func (p *planter) make(name string, h *tar.Header, content io.Reader) error {
	at := p.at()
	mode := uint32(h.Mode) & 0o7777
	switch h.Typeflag {
	case tar.TypeDir:
		if err := unix.Mkdirat(at.fd, name, mode|0o700); err != nil {
			return err
		}
		fd, err := openDir(at.fd, name)
		if err != nil {
			return err
		}
		down := opened{path: at.path + name + "/", fd: fd, mtime: h.ModTime}
		p.open = append(p.open, down)
		if at.here != nil && name != ".git" {
			p.at().here = &baseDir{}
			at.here.remember(baseEntry{name: name, below: p.at().here})
		}
		return nil
	case tar.TypeReg:
		if err := p.file(at.fd, name, mode, h.ModTime, content); err != nil {
			return err
		}
	case tar.TypeSymlink:
		if err := unix.Symlinkat(h.Linkname, at.fd, name); err != nil {
			return err
		}
		if err := unix.UtimesNanoAt(at.fd, name, times(h.ModTime), unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return err
		}
	default:
		return errors.New("a base holds files, directories and symbolic links, nothing else")
	}
	var st unix.Stat_t
	if err := unix.Fstatat(at.fd, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	p.last = st.Ctim
	if at.here != nil {
		at.here.remember(baseEntry{name: name, what: whatOf(&st)})
	}
	return nil
}

func (p *planter) file(dir int, name string, mode uint32, mtime time.Time, content io.Reader) (err error) {
	fd, err := unix.Openat(dir, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, mode)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), name)
	defer func() { err = errors.Join(err, f.Close()) }()
	if _, err := io.Copy(struct{ io.Writer }{f}, content); err != nil {
		return err
	}
	if err := unix.Fchmod(fd, mode); err != nil { // whatever the umask
		return err
	}
	return setTimes(fd, mtime)
}

// setTimes is futimens(3). The function of x/sys goes by /proc/self, which is closed to
// this process.
func setTimes(fd int, t time.Time) error {
	at := times(t)
	if _, _, errno := unix.Syscall6(unix.SYS_UTIMENSAT, uintptr(fd), 0, uintptr(unsafe.Pointer(&at[0])), 0, 0, 0); errno != 0 {
		return os.NewSyscallError("utimensat", errno)
	}
	return nil
}

func times(t time.Time) []unix.Timespec {
	ts := unix.NsecToTimespec(t.UnixNano())
	return []unix.Timespec{ts, ts}
}

// leave closes the innermost directory, which is whole.
func (p *planter) leave() error {
	at := p.at()
	p.open = p.open[:len(p.open)-1]
	defer unix.Close(at.fd)
	if at.mtime.IsZero() {
		return nil
	}
	if err := setTimes(at.fd, at.mtime); err != nil {
		return fmt.Errorf("set the time of a directory of the base: %w", err)
	}
	return nil
}

func (d *baseDir) remember(e baseEntry) {
	i, _ := d.search(e.name) // in the tar's order, which is nearly this one
	d.entries = slices.Insert(d.entries, i, e)
}

// settle returns when the kernel's clock for times of files has gone on after then: a
// change that comes in the same tick would bear the same time.
func settle(then unix.Timespec) {
	for {
		var now unix.Timespec
		if unix.ClockGettime(unix.CLOCK_REALTIME_COARSE, &now) != nil || now.Nano() > then.Nano() {
			return
		}
		time.Sleep(time.Millisecond)
	}
}
