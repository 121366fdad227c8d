package manifesttools

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/weavebus/weavebus/internal/jsontext"
	"github.com/weavebus/weavebus/pkg/frames"
	"github.com/weavebus/weavebus/pkg/tool"
)

const (
	// maxURL and maxHeaders bound what a declaration says of its endpoint.
	maxURL     = 2 << 10
	maxHeaders = 32
	// maxRedirects is how many redirects a request follows, to the same host.
	maxRedirects = 3
	// maxRetryAfter is the longest time to wait that an endpoint may ask for.
	maxRetryAfter = time.Hour
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

// web calls endpoints.
type web struct {
	secrets *secrets
	limit   int
	// open reaches the public internet and what is allowed, inside only the latter.
	open, inside *http.Client
}

func newWeb(s *secrets, allowed []netip.Prefix, limit int) *web {
	return &web{
		secrets: s, limit: limit,
		open: newHTTPClient((&guard{allowed: allowed}).dial), inside: newHTTPClient((&guard{allowed: allowed, inside: true}).dial),
	}
}

// newHTTPClient makes a client that knows no proxy and stays on the host it is sent to.
func newHTTPClient(dial func(ctx context.Context, network, address string) (net.Conn, error)) *http.Client {
	return &http.Client{
		CheckRedirect: checkRedirect,
		Transport: &http.Transport{
			DialContext: dial, ForceAttemptHTTP2: true, TLSHandshakeTimeout: dialLimit,
			MaxResponseHeaderBytes: 64 << 10, MaxIdleConns: 64, MaxIdleConnsPerHost: 8, IdleConnTimeout: 30 * time.Second,
		},
	}
}

func (w *web) close() {
	w.open.CloseIdleConnections()
	w.inside.CloseIdleConnections()
}

// checkRedirect follows a few redirects, to the same host and with the same method.
func checkRedirect(req *http.Request, via []*http.Request) error {
	first := via[0]
	var why string
	switch {
	case req.URL.Scheme != first.URL.Scheme || req.URL.Host != first.URL.Host:
		why = "redirects to another host"
	case req.Method != first.Method:
		why = "redirects to another method"
	case len(via) > maxRedirects:
		why = fmt.Sprintf("redirects more than %d times", maxRedirects)
	default:
		return nil
	}
	return frames.NewError(frames.CodeDenied, "the endpoint %s, which is not followed", why).WithReason("redirect")
}

// call posts the arguments of a call.
func (w *web) call(ctx context.Context, p *endpoint, call *tool.Call) (*frames.ToolResult, error) {
	req, err := w.request(ctx, p, call.Arguments)
	if err != nil {
		return nil, err
	}
	client := w.open
	if p.insecure {
		client = w.inside
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, unreached(ctx, err)
	}
	defer func() { _ = resp.Body.Close() }() // what was needed of it was read
	body, err := io.ReadAll(io.LimitReader(resp.Body, int64(w.limit)+1))
	switch {
	case err != nil:
		return nil, unreached(ctx, err)
	case len(body) > w.limit:
		return nil, frames.TooLarge("the answer of the endpoint of "+call.Tool, max(int64(len(body)), resp.ContentLength), int64(w.limit)).
			With(func(e *frames.Error) { e.Effect = frames.EffectDone })
	}
	res, err := bodyResult(resp, body)
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return res, statusError(resp)
	}
	return res, err
}

func (w *web) request(ctx context.Context, p *endpoint, args json.RawMessage) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url.String(), bytes.NewReader(args))
	if err != nil {
		return nil, failed("bad_endpoint", "the request cannot be made: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/plain;q=0.8, */*;q=0.5")
	req.Header.Set("User-Agent", "weavebus")
	for _, h := range p.headers {
		value := h.before
		if h.secret != "" {
			secret, err := w.secrets.value(h.secret)
			if err != nil {
				return nil, err
			}
			value += secret
		}
		req.Header.Set(h.name, value)
	}
	return req, nil
}

// unreached is the error of a request without an answer. The texts of net/http hold
// the URL; they stay in the process.
func unreached(ctx context.Context, err error) error {
	if e, ok := errors.AsType[*frames.Error](err); ok {
		return e
	}
	if ctx.Err() != nil {
		return failed("stopped", "the request was stopped: %w", ctx.Err())
	}
	var op *net.OpError
	var dns *net.DNSError
	never := errors.As(err, &dns) || errors.As(err, &op) && op.Op == "dial"
	return failed("unreachable", "no answer of the endpoint: %w", withoutURL(err)).With(func(e *frames.Error) {
		e.LLMMessage = "the tool's endpoint does not answer"
		if never {
			e.Retryable, e.Effect = true, frames.EffectNone
		}
	})
}

func withoutURL(err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		return u.Err
	}
	return err
}

// statusError is the error of an answer other than 2xx.
func statusError(resp *http.Response) error {
	code := resp.StatusCode
	return failed("http_status", "HTTP %d: %s", code, statusText(code)).With(func(e *frames.Error) {
		e.Retryable = code == http.StatusTooManyRequests || code == http.StatusServiceUnavailable
		if e.Retryable {
			e.RetryAfter = retryAfter(resp.Header.Get("Retry-After"))
		}
		if code >= 400 && code < 500 {
			e.Effect = frames.EffectNone
		}
	})
}

func statusText(code int) string {
	if text := http.StatusText(code); text != "" {
		return text
	}
	return "unknown status"
}

// retryAfter reads the header's seconds; its other form, a date, is not read.
func retryAfter(text string) time.Duration {
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		return 0
	}
	return min(time.Duration(n)*time.Second, maxRetryAfter)
}

// bodyResult reads an answer as a result: JSON as it is, other text as a text.
func bodyResult(resp *http.Response, body []byte) (*frames.ToolResult, error) {
	media, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	isJSON := media == "application/json" || strings.HasSuffix(media, "+json")
	if !utf8.Valid(body) {
		return nil, doneBut("not_text", "the endpoint's answer (%s) is no UTF-8 text", jsontext.Clip(media, 60))
	}
	res := textResult(string(body))
	if isJSON && res.Parts != nil {
		p := jsontext.Check(bytes.TrimSpace(body), jsontext.Limits{})
		return nil, doneBut("invalid_json", "the endpoint's answer says that it is JSON, but it is not: %s", p)
	}
	return res, nil
}

func doneBut(reason, format string, args ...any) error {
	return failed(reason, format, args...).With(func(e *frames.Error) { e.Effect = frames.EffectDone })
}
