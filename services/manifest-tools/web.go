package manifesttools

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/weavebus/weavebus/internal/jsontext"
	"github.com/weavebus/weavebus/pkg/frames"
	"github.com/weavebus/weavebus/pkg/tool"
)

const (
	// maxRedirects is how many redirects a request follows, to the same host.
	maxRedirects = 3
	// maxRetryAfter is the longest time to wait that an endpoint may ask for.
	maxRetryAfter = time.Hour
)

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
