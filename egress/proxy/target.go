package proxy

import (
	"net/http"
	"strings"

	"tendril/destination"
)

// target returns what a request asks for, by its target and by nothing else. What else
// names the server has to agree.
func (s *session) target(r *http.Request) (destination.URL, *denial) {
	if len(r.Header) > mostFields {
		return destination.URL{}, tooLarge("the header is larger than %d fields", mostFields)
	}
	text := r.RequestURI
	within := s.authority != destination.Authority{}
	switch {
	case within && strings.HasPrefix(text, "/"):
		text = string(destination.HTTPS) + "://" + s.authority.String() + text
	case !within && strings.HasPrefix(text, "/"):
		return destination.URL{}, malformed("this is a proxy, and the target is no URL with a scheme and a host")
	}
	url, err := destination.Parse(text)
	if err != nil {
		return destination.URL{}, unjudged(err)
	}
	if within && (url.Scheme() != destination.HTTPS || url.Authority() != s.authority) {
		return destination.URL{}, misdirected("the target names another server than the connection was made to: %s", url.Authority())
	}
	for _, host := range append([]string{r.Host}, r.Header.Values("Host")...) {
		if !names(host, url.Scheme(), url.Authority()) {
			return destination.URL{}, otherHost(host)
		}
	}
	return url, nil
}

func misdirected(format string, args ...any) *denial {
	return refuse(http.StatusMisdirectedRequest, ruleAuthority, format, args...)
}

// otherHost quotes the text of a Host field, which may be anything.
func otherHost(host string) *denial {
	return misdirected("the Host of the request is not the server that it is for: %+q", clip(host, 64))
}

// names reports whether the text of a Host field means an authority. Without a port it
// means the scheme's.
func names(host string, scheme destination.Scheme, authority destination.Authority) bool {
	if host == "" || strings.ContainsAny(host, "/?#") {
		return false
	}
	url, err := destination.Parse(string(scheme) + "://" + host)
	return err == nil && url.Authority() == authority
}
