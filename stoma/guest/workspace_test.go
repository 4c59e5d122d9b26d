//go:build linux

package guest_test

import (
	"testing"

	"tendril/stoma"
)

func TestWritable(t *testing.T) {
	s := setup{args: []string{"--writable", "/var/tmp"}}
	onEach(t, s, func(t *testing.T, c *stoma.Client) {
		wantCode(t, do(t, c, sh("echo x >/var/tmp/f && [ $(stat -c %a:%u /var/tmp) = 1777:70707 ]"), ""), 0)
		wantCode(t, do(t, c, sh("dd if=/dev/zero of=/var/tmp/big bs=1M count=65"), ""), 1)
	})
}
