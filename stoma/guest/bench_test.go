//go:build linux

package guest_test

import (
	"io"
	"testing"

	"tendril/stoma"
)

func benchmark(b *testing.B, run func(*testing.B, *stoma.Client)) {
	for _, g := range grounds {
		b.Run(g.name, func(b *testing.B) { run(b, open(b, g, setup{})) })
	}
}

func benchmarkCommand(b *testing.B, c *stoma.Client, r stoma.ExecRequest) {
	for b.Loop() {
		p, err := c.Exec(b.Context(), r)
		if err != nil {
			b.Fatal(err)
		}
		_ = p.Stdin.Close()
		if _, err := io.Copy(io.Discard, p.Stdout); err != nil {
			b.Fatal(err)
		}
		if _, err := p.Wait(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkExec is one more command in an open Terrarium.
func BenchmarkExec(b *testing.B) {
	benchmark(b, func(b *testing.B, c *stoma.Client) { benchmarkCommand(b, c, request("/usr/bin/true")) })
}

// BenchmarkLookup is an exec without a process.
func BenchmarkLookup(b *testing.B) {
	benchmark(b, func(b *testing.B, c *stoma.Client) {
		for b.Loop() {
			if _, err := c.Exec(b.Context(), request("no-such-program")); err == nil {
				b.Fatal("started")
			}
		}
	})
}

func BenchmarkDownload(b *testing.B) {
	const size = 64 << 20
	benchmark(b, func(b *testing.B, c *stoma.Client) {
		b.SetBytes(size)
		benchmarkCommand(b, c, request("dd", "if=/dev/zero", "bs=64k", "count=1024"))
	})
}
