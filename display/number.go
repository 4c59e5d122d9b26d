package display

import (
	"fmt"
	"strconv"
	"time"
)

// Size renders a number of bytes with three digits at most before the point and
// one after it, in powers of 1024: "512 B", "1.5 KiB", "4 GiB".
func Size(bytes int64) string {
	const units = "KMGTPE"
	if bytes > -1024 && bytes < 1024 {
		return strconv.FormatInt(bytes, 10) + " B"
	}
	value, unit := float64(bytes)/1024, 0
	// 1023.95 would round to 1024.0 of this unit.
	for (value >= 1023.95 || value <= -1023.95) && unit < len(units)-1 {
		value /= 1024
		unit++
	}
	digits := strconv.FormatFloat(value, 'f', 1, 64)
	if digits[len(digits)-2:] == ".0" {
		digits = digits[:len(digits)-2]
	}
	return fmt.Sprintf("%s %ciB", digits, units[unit])
}

// Duration renders a length of time at the precision a person cares for:
// "812 ms", "4.2 s", "3 m 07 s", "2 h 05 m", "3 d 04 h". A negative one, which
// only a clock that was set back makes, is rendered as Go does.
func Duration(d time.Duration) string {
	if d < 0 {
		return d.String()
	}
	if ms := d.Round(time.Millisecond); ms < time.Second {
		return fmt.Sprintf("%d ms", ms.Milliseconds())
	}
	if tenths := d.Round(100 * time.Millisecond); tenths < time.Minute {
		return fmt.Sprintf("%.1f s", tenths.Seconds())
	}
	whole := int64(d.Round(time.Second) / time.Second)
	switch {
	case whole < 3600:
		return fmt.Sprintf("%d m %02d s", whole/60, whole%60)
	case whole < 24*3600:
		return fmt.Sprintf("%d h %02d m", whole/3600, whole/60%60)
	default:
		return fmt.Sprintf("%d d %02d h", whole/(24*3600), whole/3600%24)
	}
}
