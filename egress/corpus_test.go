package egress

import (
	"encoding/json"
	"net/netip"
	"os"
	"testing"

	"tendril/corpora"
	"tendril/destination"
)

func TestForeignAddresses(t *testing.T) {
	for _, row := range corpora.Rows(t, "ip_classes.tsv") {
		class := Classify(netip.MustParseAddr(row["ip"]))
		switch row["expected"] {
		case "internal":
			if class.Reachable {
				t.Errorf("a hole: %s (%s) is reachable: %s", row["ip"], row["why"], class)
			}
		case "public":
			if !class.Reachable {
				t.Errorf("%s (%s) is not reachable: %s", row["ip"], row["why"], class)
			}
		case "grey": // either is safe
		default:
			t.Errorf("%s: what is %q?", row["ip"], row["expected"])
		}
	}
}

// listed is the allow-list of the table of URLs.
func listed(t *testing.T) []destination.Rule {
	t.Helper()
	var rules []destination.Rule
	for _, host := range []string{"example.com", "*.example.org", "api.github.com"} {
		pattern, err := destination.ParsePattern(host)
		if err != nil {
			t.Fatal(err)
		}
		for _, scheme := range []destination.Scheme{destination.HTTPS, destination.HTTP} {
			rules = append(rules, destination.Rule{Host: pattern, Scheme: scheme})
		}
	}
	return rules
}

// A whole road: the URL is parsed and decided, its name asked of a name server over
// sockets, and its address connected to. Once with the table's list, and once as if
// every host were listed, so that the address alone decides.
func TestForeignURLs(t *testing.T) {
	rows := corpora.Rows(t, "ssrf.tsv")
	rules := listed(t)
	records := map[string]string{}
	for _, row := range rows {
		if u, err := parse(t, row); err == nil && row["dns"] != "" {
			records[u.Authority().Host.String()] = row["dns"]
		}
	}
	server := zone(t, func(name string) string {
		if text, ok := records[name]; ok {
			return text
		}
		return "A 93.184.216.34"
	})
	world := newInternet(t)
	d := Dialer{Resolver: server.resolver(), Connect: world.Connect}
	counts := map[string]int{}
	judge := func(row map[string]string, rules []destination.Rule, expected, strength string) {
		u, err := parse(t, row)
		if err == nil && (rules == nil || destination.Decide(u, "GET", rules).Allowed) {
			_, err = dial(&d, u.Authority())
		} else if err == nil {
			err = os.ErrPermission
		}
		for _, to := range world.calls() {
			if !Classify(to.Addr()).Reachable {
				t.Errorf("%s: %s was dialled", row["id"], to)
			}
		}
		switch {
		case expected == "deny" && err == nil && strength != "may":
			t.Errorf("%s: a hole: %s is reached (%s)", row["id"], row["url"], row["why"])
		case expected == "allow" && err != nil && strength == "must":
			t.Errorf("%s: %s is not reached (%s): %v", row["id"], row["url"], row["why"], err)
		default:
			counts[strength+" "+expected]++
		}
	}
	for _, row := range rows {
		judge(row, rules, row["expected"], row["strength"])
		switch open := row["expected_open"]; open {
		case "allow", "deny", "either":
			judge(row, nil, open, row["strength"])
		case "-": // says nothing
		default:
			t.Errorf("%s: what is %q?", row["id"], open)
		}
	}
	t.Logf("%v", counts)
}

func parse(t *testing.T, row map[string]string) (destination.URL, error) {
	t.Helper()
	var text string
	if err := json.Unmarshal([]byte(row["url"]), &text); err != nil {
		t.Fatalf("%s: %v", row["id"], err)
	}
	return destination.Parse(text)
}
