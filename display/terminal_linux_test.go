package display

import (
	"bufio"
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// terminal returns both ends of a new pseudo-terminal of so many columns.
func terminal(t *testing.T, columns uint16) (master, slave *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("this host gives no pseudo-terminal: %v", err)
	}
	t.Cleanup(func() { master.Close() })
	fd := int(master.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { slave.Close() })
	if err := unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: columns}); err != nil {
		t.Fatal(err)
	}
	return master, slave
}

func TestOnATerminal(t *testing.T) {
	master, slave := terminal(t, 30)
	live := NewLive(slave)
	s := live.Stream(StdoutPrefix)
	live.Status("running")
	fmt.Fprintf(s, "%s%s\n", strings.Repeat("x", 28), "tendril: verdict clean")
	live.Close()
	lines := bufio.NewReader(master)
	// The terminal puts a return before each newline.
	for _, want := range []string{
		"running\r\x1b[K│ " + strings.Repeat("x", 27) + "\r\n",
		"│ xtendril: verdict clean\r\n",
	} {
		got, err := lines.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		if got != want {
			t.Errorf("got  %q\nwant %q", got, want)
		}
	}
}

func TestATerminalThatDoesNotSayHowWideItIs(t *testing.T) {
	_, slave := terminal(t, 0)
	if got := terminalWidth(slave); got != narrowest {
		t.Errorf("%d columns, want %d", got, narrowest)
	}
}
