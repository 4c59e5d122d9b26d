//go:build !linux

package site

// Unmapped is false: only Linux has user namespaces.
func Unmapped(int) bool { return false }
