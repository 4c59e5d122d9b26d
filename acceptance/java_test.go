//go:build linux

package acceptance_test

import (
	"slices"
	"testing"
)

// fetchInJava is one file, which java compiles and runs. It says which trust store it was
// pointed at, because Debian's Java would find that one by itself.
const fetchInJava = `
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse.BodyHandlers;

public class Fetch {
	public static void main(String[] args) throws Exception {
		System.out.println(System.getProperty("javax.net.ssl.trustStore"));
		URI uri = URI.create(args[0]);
		try (var in = uri.toURL().openStream()) {
			System.out.println(new String(in.readAllBytes()));
		}
		var answer = HttpClient.newHttpClient().send(HttpRequest.newBuilder(uri).build(), BodyHandlers.ofString());
		System.out.println(answer.statusCode() + " " + answer.body());
	}
}
`

// Both of Java's clients go over the road, and trust the run's authority. Java asks an
// address of the loopback without a proxy (http.nonProxyHosts), so the server has a name.
func TestJavaFetchesOverTheRoad(t *testing.T) {
	needsInside(t, "java", "javac")
	if !underOwnNames(t) {
		return
	}
	g := newGarden(t)
	o := g.goOutsideAs(t, outsideName)
	o.serve(served{files: map[string][]byte{"/ok/leaf": []byte("leaf by java")}})
	g.permitRules(o.rule("GET", `"/ok/*"`))
	r, said := g.grown("cat >/tmp/Fetch.java <<'END'\n" + fetchInJava + "END\n" +
		"/usr/bin/java /tmp/Fetch.java " + o.url() + "/ok/leaf >out.txt 2>java.txt")

	const want = "/etc/ssl/certs/java/cacerts\nleaf by java\n200 leaf by java"
	if got := g.written(r, "out.txt"); said.status != 0 || got != want {
		t.Errorf("%q; java said\n%s", got, g.written(r, "java.txt"))
	}
	if seen := o.requests(); !slices.Equal(seen, []string{"GET /ok/leaf", "GET /ok/leaf"}) {
		t.Errorf("the server saw %q", seen)
	}
}
