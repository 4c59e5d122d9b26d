package firecracker

import (
	"cmp"
	"fmt"
	"regexp"
	"strconv"

	"tendril/fault"
)

// Version is a release.
type Version struct{ Major, Minor, Patch int }

func (v Version) String() string { return fmt.Sprintf("%d.%d.%d", v.Major, v.Minor, v.Patch) }

func (v Version) compare(o Version) int {
	return cmp.Or(cmp.Compare(v.Major, o.Major), cmp.Compare(v.Minor, o.Minor), cmp.Compare(v.Patch, o.Patch))
}

var versionLine = regexp.MustCompile(`^(Firecracker|Jailer) v([0-9]{1,4})\.([0-9]{1,4})\.([0-9]{1,4})(-[0-9A-Za-z.-]{1,40})?\s*$`)

// ParseVersion reads the first line that `firecracker --version` or `jailer --version`
// prints.
func ParseVersion(line string) (program string, v Version, ok bool) {
	match := versionLine.FindStringSubmatch(line)
	if match == nil {
		return "", Version{}, false
	}
	for i, part := range []*int{&v.Major, &v.Minor, &v.Patch} {
		n, err := strconv.Atoi(match[i+2])
		if err != nil {
			return "", Version{}, false
		}
		*part = n
	}
	return match[1], v, true
}

// oldest is the first release that describes its devices by ACPI (its CHANGELOG.md for
// 1.8.0), as the guest's kernel finds them.
var oldest = Version{1, 8, 0}

// advisory is a defect that lets a guest, or another account, through.
type advisory struct {
	id, what string
	affected []span
}

// span is the releases from first on that come before fixed.
type span struct{ first, fixed Version }

// advisories are those of github.com/firecracker-microvm/firecracker/security/advisories
// and aws.amazon.com/security/security-bulletins.
var advisories = []advisory{
	{"CVE-2019-18960", "a guest writes beyond a buffer of the vsock device", []span{{Version{0, 18, 0}, Version{0, 18, 1}}, {Version{0, 19, 0}, Version{0, 19, 1}}}},
	{"CVE-2020-16843", "a guest stops the network of its machine for good", []span{{Version{0, 20, 0}, Version{0, 20, 1}}, {Version{0, 21, 0}, Version{0, 21, 2}}}},
	{"CVE-2020-27174", "a guest makes its serial console take up the host's memory", []span{{Version{}, Version{0, 21, 3}}, {Version{0, 22, 0}, Version{0, 22, 1}}}},
	{"CVE-2026-1386", "the jailer follows a link and writes over a file of the host", []span{{Version{}, Version{1, 13, 2}}, {Version{1, 14, 0}, Version{1, 14, 1}}}},
	{"CVE-2026-5747", "a guest writes beyond a queue of a PCI device", []span{{Version{1, 13, 0}, Version{1, 14, 4}}, {Version{1, 15, 0}, Version{1, 15, 1}}}},
}

// Check returns nil for a release that is fit for use, as far as is known here.
func (v Version) Check() error {
	for _, a := range advisories {
		for _, s := range a.affected {
			if v.compare(s.first) >= 0 && v.compare(s.fixed) < 0 {
				return fault.New(fault.Unavailable, "firecracker %s is not fit for use: %s (%s)", v, a.what, a.id).
					WithRule("versions with known advisories are refused").
					WithHint("install the newest release, with its jailer")
			}
		}
	}
	if v.compare(oldest) < 0 {
		return fault.New(fault.Unavailable, "firecracker %s is too old for this guest, which needs %s", v, oldest).
			WithHint("install the newest release, with its jailer")
	}
	return nil
}
