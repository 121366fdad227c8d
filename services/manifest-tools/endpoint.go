package manifesttools

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/weavebus/weavebus/internal/jsontext"
)

const (
	// maxURL and maxHeaders bound what a declaration says of its endpoint.
	maxURL     = 2 << 10
	maxHeaders = 32
)

// endpoint is a URL that arguments are posted to.
type endpoint struct {
	url     *url.URL
	headers []header
	// insecure: a secret goes there over plain http.
	insecure bool
}

// header is one header of the request. Its value is before, and the secret after it.
type header struct {
	name, before string
	secret       string // empty for none
}

// parseURL reads an absolute http or https URL. The error does not repeat it: it
// may hold a password.
func parseURL(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return nil, errors.New("is no URL")
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, errors.New("has to begin with http:// or https://")
	case u.Hostname() == "" || u.Opaque != "":
		return nil, errors.New("names no host")
	case u.User != nil:
		return nil, errors.New("holds a user or a password; those go into headers, as a secret")
	case u.Fragment != "":
		return nil, errors.New("has a fragment (#), which is never sent")
	case len(text) > maxURL:
		return nil, fmt.Errorf("has %d bytes, the limit is %d", len(text), maxURL)
	}
	if p := u.Port(); p != "" {
		if n, err := strconv.Atoi(p); err != nil || n < 1 || n > 65535 {
			return nil, errors.New("has a port that is none")
		}
	}
	return u, nil
}

// readEndpoint reads endpoint and headers.
func (r rules) readEndpoint(e *entry, members map[string]json.RawMessage) error {
	text, err := e.at.in("endpoint").text(members["endpoint"])
	if err != nil {
		return err
	}
	p := &endpoint{}
	if p.url, err = parseURL(text); err != nil {
		return e.at.in("endpoint").refuse("%s", err)
	}
	for _, key := range []string{"args", "env"} {
		if _, ok := members[key]; ok {
			return e.at.in(key).refuse("is for commands only")
		}
	}
	if v := members["headers"]; !isNull(v) {
		if err := r.readHeaders(e.at.in("headers"), v, p); err != nil {
			return err
		}
	}
	e.endpoint = p
	return nil
}

func (r rules) readHeaders(at place, text json.RawMessage, p *endpoint) error {
	members, err := at.object(text)
	if err != nil {
		return err
	}
	if len(members) > maxHeaders {
		return at.refuse("has %d headers, the limit is %d", len(members), maxHeaders)
	}
	for _, name := range slices.Sorted(maps.Keys(members)) {
		at := at.in(name)
		if !validHeader(name) {
			return at.refuse("is no header that may be set")
		}
		h, err := r.readHeader(at, name, members[name], p.url)
		if err != nil {
			return err
		}
		p.headers = append(p.headers, h)
		p.insecure = p.insecure || h.secret != "" && p.url.Scheme != "https"
	}
	return nil
}

// kept are the headers that the request has of its own.
var kept = []string{
	"Accept", "Accept-Encoding", "Connection", "Content-Length", "Content-Type", "Expect", "Host", "Keep-Alive",
	"Te", "Trailer", "Transfer-Encoding", "Upgrade",
}

var headerPattern = regexp.MustCompile("^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}$")

func validHeader(name string) bool {
	canonical := http.CanonicalHeaderKey(name)
	return headerPattern.MatchString(name) && !strings.HasPrefix(canonical, "Proxy-") && !slices.Contains(kept, canonical)
}

// readHeader reads a value: a text, or {env or file, prefix}.
func (r rules) readHeader(at place, name string, v json.RawMessage, u *url.URL) (h header, err error) {
	h.name = name
	if len(v) > 0 && v[0] == '"' {
		h.before, err = at.headerText(v)
		return h, err
	}
	members, err := at.object(v)
	if err != nil {
		return h, err
	}
	if err := at.known(members, "env", "file", "prefix"); err != nil {
		return h, err
	}
	if p := members["prefix"]; !isNull(p) {
		if h.before, err = at.in("prefix").headerText(p); err != nil {
			return h, err
		}
	}
	h.secret, err = r.readSecretRef(at, members, u)
	return h, err
}

func (at place) headerText(v json.RawMessage) (string, error) {
	s, err := at.text(v)
	if err == nil && (len(s) > maxSecret || strings.ContainsFunc(s, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f })) {
		err = at.refuse("holds a control character, or is over %d bytes", maxSecret)
	}
	return s, err
}

// readSecretRef reads which secret a header holds, and asks whether it may.
func (r rules) readSecretRef(at place, members map[string]json.RawMessage, u *url.URL) (string, error) {
	key := "env"
	if members["file"] != nil {
		key = "file"
	}
	if (members["env"] == nil) == (members["file"] == nil) {
		return "", at.refuse("has either env, the name of a variable, or file, an absolute path")
	}
	at = at.in(key)
	ref, err := at.text(members[key])
	if err != nil {
		return "", err
	}
	if (key == "file") != strings.HasPrefix(ref, "/") {
		return "", at.refuse("is %q; env is the name of a variable, file an absolute path", jsontext.Clip(ref, 60))
	}
	if !r.secrets.allowed(ref, strings.ToLower(u.Hostname()), strings.ToLower(u.Host), r.remote) {
		more := ""
		if r.remote {
			more = "@" + u.Host
		}
		return "", at.refuse("the secret is not allowed: the operator allows it with --allow-secret %s%s", jsontext.Clip(ref, 200), more)
	}
	if _, ok := r.secrets.variable(ref); key == "env" && !ok {
		return "", at.refuse("the variable %s is not set", ref)
	}
	return ref, nil
}
