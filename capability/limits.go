package capability

import (
	"encoding/json"
	"math"
	"strconv"
	"strings"
	"time"

	"tendril/fault"
)

// Limits are the bounds that somebody asks for. A nil field asks for nothing
// and means the default; one that is set has to be enforced or sampled, or the
// run is refused.
type Limits struct {
	CPUs   *float64  `json:"cpus" yaml:"cpus"`     // processors, 0.01 to 1024
	Memory *Bytes    `json:"memory" yaml:"memory"` // swap included
	Disk   *Bytes    `json:"disk" yaml:"disk"`     // of the workspace's changes and of scratch
	Output *Bytes    `json:"output" yaml:"output"` // stdout and stderr together
	Pids   *int      `json:"pids" yaml:"pids"`     // processes and threads, 1 to 4194304 (PID_MAX_LIMIT)
	Wall   *Duration `json:"wall" yaml:"wall"`     // wall-clock time
	Idle   *Duration `json:"idle" yaml:"idle"`     // time without output and without processor use
}

// The ranges of limits. The lower ends are what anything needs at all to start;
// the upper ends catch a slip of the unit.
const (
	leastCPUs, mostCPUs         = 0.01, 1024
	leastMemory, mostMemory     = Bytes(16 << 20), Bytes(64 << 40)
	leastDisk, mostDisk         = Bytes(1 << 20), Bytes(64 << 40)
	leastOutput, mostOutput     = Bytes(1), Bytes(64 << 40)
	leastPids, mostPids         = 8, 1 << 22
	leastDuration, mostDuration = Duration(time.Second), Duration(366 * 24 * time.Hour)
)

// Validate refuses a limit out of its range, by name.
func (l Limits) Validate() error {
	return firstError(
		inRange("cpus", l.CPUs, leastCPUs, mostCPUs),
		inRange("memory", l.Memory, leastMemory, mostMemory),
		inRange("disk", l.Disk, leastDisk, mostDisk),
		inRange("output", l.Output, leastOutput, mostOutput),
		inRange("pids", l.Pids, leastPids, mostPids),
		inRange("wall", l.Wall, leastDuration, mostDuration),
		inRange("idle", l.Idle, leastDuration, mostDuration),
	)
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// inRange is written so that NaN is out of every range.
func inRange[T float64 | int | Bytes | Duration](name string, value *T, least, most T) error {
	if value == nil || (*value >= least && *value <= most) {
		return nil
	}
	return fault.New(fault.Invalid, "the %s limit of %v is out of range", name, *value).
		WithHint("it is between %v and %v", least, most)
}

// Bytes is a number of bytes. In JSON it is an integer; both JSON and YAML also
// take what [ParseBytes] takes.
type Bytes int64

var byteUnits = []struct {
	name string
	size int64
}{
	// Longest first: "B" ends every one of them.
	{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40},
	{"KB", 1e3}, {"kB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12},
	{"B", 1},
}

// ParseBytes parses a whole number of bytes, without a sign, a fraction or
// spaces, and with an optional unit: KiB, MiB, GiB and TiB count in powers of
// 1024, KB (or kB), MB, GB and TB in powers of 1000 (IEC 80000-13). A bare K, M
// or G is refused, because programs disagree on what it means.
func ParseBytes(s string) (Bytes, error) {
	digits, unit := s, int64(1)
	for _, u := range byteUnits {
		if rest, ok := strings.CutSuffix(s, u.name); ok {
			digits, unit = rest, u.size
			break
		}
	}
	n, err := parseDigits(digits)
	if err != nil || n > math.MaxInt64/unit {
		return 0, fault.New(fault.Invalid, "%q is not a size", clip(s)).
			WithHint("a size is a whole number and a unit, such as 512MiB or 4GiB")
	}
	return Bytes(n * unit), nil
}

func parseDigits(s string) (int64, error) {
	if s == "" || strings.Trim(s, "0123456789") != "" || (len(s) > 1 && s[0] == '0') {
		return 0, strconv.ErrSyntax // ParseInt would take a sign, and 010 for ten
	}
	return strconv.ParseInt(s, 10, 64)
}

// String is the size in the largest unit that loses nothing; ParseBytes takes
// it.
func (b Bytes) String() string {
	for _, u := range []struct {
		name string
		size Bytes
	}{{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
		if b != 0 && b%u.size == 0 {
			return strconv.FormatInt(int64(b/u.size), 10) + u.name
		}
	}
	return strconv.FormatInt(int64(b), 10) + "B"
}

// UnmarshalJSON implements [json.Unmarshaler].
func (b *Bytes) UnmarshalJSON(data []byte) error {
	text, err := scalar(data)
	if err != nil {
		return err
	}
	return b.UnmarshalText([]byte(text))
}

// UnmarshalText parses what [ParseBytes] parses.
func (b *Bytes) UnmarshalText(text []byte) error {
	parsed, err := ParseBytes(string(text))
	if err == nil {
		*b = parsed
	}
	return err
}

// scalar returns a JSON string's value, or a number as it is written.
func scalar(data []byte) (string, error) {
	if data[0] != '"' {
		return string(data), nil
	}
	var s string
	err := json.Unmarshal(data, &s)
	return s, err
}

// Duration is a length of time. In JSON and YAML it is text that
// [ParseDuration] takes.
type Duration time.Duration

// ParseDuration parses a length of time as [time.ParseDuration] does ("90s",
// "1h30m"), without a sign. A number needs its unit.
func ParseDuration(s string) (Duration, error) {
	d, err := time.ParseDuration(s)
	if err != nil || s == "0" || strings.ContainsAny(s, "+-") {
		return 0, fault.New(fault.Invalid, "%q is not a length of time", clip(s)).
			WithHint("a length of time is a number and a unit, such as 90s, 30m or 1h30m")
	}
	return Duration(d), nil
}

// String is the duration as ParseDuration takes it.
func (d Duration) String() string { return time.Duration(d).String() }

// MarshalText implements [encoding.TextMarshaler].
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText parses what [ParseDuration] parses.
func (d *Duration) UnmarshalText(text []byte) error {
	parsed, err := ParseDuration(string(text))
	if err == nil {
		*d = parsed
	}
	return err
}

// clip bounds what an error repeats of a value that a caller sent.
func clip(s string) string {
	const most = 64
	if len(s) > most {
		return s[:most] + "…"
	}
	return s
}
