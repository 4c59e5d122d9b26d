//go:build linux

package rootfs

import (
	"testing"
)

var sprout = User{UID: 70707, GID: 70707, Name: "sprout", Home: "/home/sprout"}

func BenchmarkHostView(b *testing.B) {
	for b.Loop() {
		if _, err := HostView(nil, sprout); err != nil {
			b.Fatal(err)
		}
	}
}
