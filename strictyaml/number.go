package strictyaml

import (
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// wholeNumber returns the value of a plain scalar of digits, with an optional
// minus sign and no superfluous zero. YAML would also read 010, 0x8, 0b1 and
// 1_000, and people do not agree on what 010 is.
func wholeNumber(node *yaml.Node, bits int) (int64, bool) {
	digits := strings.TrimPrefix(node.Value, "-")
	if node.Tag != "!!int" || !isDigits(digits) || (len(digits) > 1 && digits[0] == '0') {
		return 0, false
	}
	n, err := strconv.ParseInt(node.Value, 10, bits)
	return n, err == nil
}

// decimal returns the value of a plain scalar of digits with at most one point
// between them: no exponent, no infinity, and not "not a number".
func decimal(node *yaml.Node) (float64, bool) {
	if node.Tag != "!!int" && node.Tag != "!!float" {
		return 0, false
	}
	whole, fraction, pointed := strings.Cut(strings.TrimPrefix(node.Value, "-"), ".")
	if !isDigits(whole) || (len(whole) > 1 && whole[0] == '0') || (pointed && !isDigits(fraction)) {
		return 0, false
	}
	n, err := strconv.ParseFloat(node.Value, 64)
	return n, err == nil
}

func isDigits(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == ""
}
