package proxy

import (
	"io"
	"net/http"
	"testing"
)

// What the proxy adds to a request: each benchmark once through it and once direct.
func BenchmarkRequest(b *testing.B) {
	for _, kept := range []bool{true, false} {
		for _, direct := range []bool{true, false} {
			name := map[bool]string{true: "kept", false: "new"}[kept] + "/" + map[bool]string{true: "direct", false: "proxy"}[direct]
			b.Run(name, func(b *testing.B) {
				s := open(b)
				server := s.serveTLS(says("hello"), false, "example.com")
				client := s.client(false)
				transport := client.Transport.(*http.Transport)
				transport.DisableKeepAlives = !kept
				url := "https://example.com/"
				if direct {
					transport.Proxy = nil
					transport.TLSClientConfig.ServerName = "example.com"
					url = "https://" + server.Listener.Addr().String() + "/"
				}
				for b.Loop() {
					response, err := client.Get(url)
					if err != nil {
						b.Fatal(err)
					}
					_, _ = io.Copy(io.Discard, response.Body)
					response.Body.Close()
				}
			})
		}
	}
}
