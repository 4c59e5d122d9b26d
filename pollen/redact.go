package pollen

import "regexp"

// tokenForm is what a token looks like, and what is left of one that was cut. It takes
// more than a leak scanner would: here a false alarm costs nothing. The last part is for
// tokens without anything between them, where the next one's prefix begins with letters.
var tokenForm = regexp.MustCompile(tokenPrefix + `[0-9A-Za-z]{10,}(?:_pollen_[0-9A-Za-z]+)*`)

// Redact returns s without what has the form of a token, wherever it stands in it: for
// what is shown or recorded of things that a caller named, because a token can be given
// where a name belongs. s need not be UTF-8.
func Redact(s string) string { return tokenForm.ReplaceAllLiteralString(s, redacted) }
