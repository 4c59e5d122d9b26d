package site

import (
	"os"
	"strconv"
	"strings"
	"sync"
)

// Unmapped says whether a uid that the kernel told is what it calls every account
// without a number in this process's user namespace (user_namespaces(7)). Such a uid
// proves nothing: it compares equal for different accounts.
func Unmapped(uid int) bool { return uid == overflowUID() }

// overflowUID is that uid; -1 if every account has a number here.
var overflowUID = sync.OnceValue(func() int {
	uids, err := os.ReadFile("/proc/self/uid_map")
	if err == nil && mapsAll(string(uids)) {
		return -1
	}
	text, err := os.ReadFile("/proc/sys/kernel/overflowuid")
	if err == nil {
		if uid, err := strconv.Atoi(strings.TrimSpace(string(text))); err == nil {
			return uid
		}
	}
	return 65534 // DEFAULT_OVERFLOWUID of the kernel
})

// mapsAll says whether a uid_map (user_namespaces(7)) has a number for every uid.
func mapsAll(text string) bool {
	var covered int64
	for line := range strings.Lines(text) {
		fields := strings.Fields(line) // their ranges do not overlap
		if len(fields) != 3 {
			return false
		}
		count, err := strconv.ParseInt(fields[2], 10, 64)
		if err != nil {
			return false
		}
		covered += count
	}
	return covered >= 1<<32-1 // (uid_t)-1 is no uid
}
