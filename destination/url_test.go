package destination

// sameAgain checks that the one form is one.
func sameAgain(t interface{ Errorf(string, ...any) }, u URL) {
	again, err := Parse(u.String())
	if err != nil || again != u {
		t.Errorf("%s became %s: %v", u, again, err)
	}
}
