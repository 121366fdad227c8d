package openai

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/weavebus/weavebus/internal/sse"
	"github.com/weavebus/weavebus/pkg/frames"
)

// refusal is what a server said when it would not answer: by status, or by an
// error object in a body or in the stream.
type refusal struct {
	status  int // 0 if unknown
	code    string
	kind    string
	message string
	retry   time.Duration
}

// Error makes a refusal travel as an error until the provider judges it.
func (r *refusal) Error() string { return r.message }

// judge gives a refusal its code; see the package comment for the table.
func (p *Provider) judge(r *refusal, model string) *frames.Error {
	e := p.verdict(r, model)
	if r.retry > 0 {
		e.RetryAfter = r.retry
	}
	return e
}

func (p *Provider) verdict(r *refusal, model string) *frames.Error {
	said := p.clean(r.message)
	switch status := r.effectiveStatus(); {
	case status == http.StatusUnauthorized, status == http.StatusForbidden, status == http.StatusPaymentRequired:
		return p.errorf(frames.CodeDenied, "the server refused access (%d): check OPENAI_API_KEY and the base URL%s", status, said)
	case r.contextFull():
		return p.errorf(frames.CodeLimit, "the conversation does not fit model %q%s", clip(model), said).WithReason("context_length")
	case status == http.StatusNotFound, r.unknownModel():
		return p.errorf(frames.CodeNotFound, "no model %q at %s: check the model's name and the base URL%s",
			clip(model), p.where(), said).WithReason("model_not_found")
	case status == http.StatusTooManyRequests:
		return p.busy(r, said)
	case transient(status):
		return p.errorf(frames.CodeUnavailable, "the server failed (%d)%s", status, said)
	case status >= 300 && status < 400:
		return final(p.errorf(frames.CodeUnavailable, "the server redirects (%d)%s", status, said))
	}
	e := p.errorf(frames.CodeValidationInput, "the server refused the request (%d)%s", r.effectiveStatus(), said)
	return final(e).WithReason("request_refused")
}

func transient(status int) bool {
	switch status {
	case http.StatusRequestTimeout, http.StatusConflict, http.StatusTooEarly:
		return true
	}
	return status >= 500
}

func (p *Provider) busy(r *refusal, said string) *frames.Error {
	e := p.errorf(frames.CodeBusy, "the server is at its rate limit%s", said)
	if r.is("insufficient_quota") {
		return final(e).WithReason("insufficient_quota")
	}
	return e.WithReason("rate_limit")
}

func final(e *frames.Error) *frames.Error {
	return e.With(func(c *frames.Error) { c.Retryable = false })
}

// effectiveStatus gives the status, or the one that the words of an error in
// the stream stand for; 500 when they say nothing.
func (r *refusal) effectiveStatus() int {
	if r.status != 0 {
		return r.status
	}
	if n, err := strconv.Atoi(r.code); err == nil && n >= 400 && n < 600 {
		return n
	}
	switch {
	case r.is("rate_limit", "rate_limit_exceeded", "rate_limit_error", "insufficient_quota", "too_many_requests"):
		return http.StatusTooManyRequests
	case r.is("invalid_api_key", "authentication_error", "permission_error", "permission_denied"):
		return http.StatusUnauthorized
	case r.is("not_found_error", "NotFoundError"):
		return http.StatusNotFound
	case r.is("invalid_request_error", "BadRequestError", "invalid_request"):
		return http.StatusBadRequest
	}
	return http.StatusInternalServerError
}

func (r *refusal) is(words ...string) bool {
	for _, word := range words {
		if strings.EqualFold(r.code, word) || strings.EqualFold(r.kind, word) {
			return true
		}
	}
	return false
}

func (r *refusal) contextFull() bool {
	if r.status == http.StatusRequestEntityTooLarge || r.is("context_length_exceeded", "exceed_context_size_error") {
		return true
	}
	if s := r.effectiveStatus(); s < 400 || s == http.StatusTooManyRequests {
		return false
	}
	return r.says("context length", "context window", "context size", "prompt is too long", "too many tokens", "maximum context")
}

func (r *refusal) unknownModel() bool {
	return r.is("model_not_found") || r.effectiveStatus() == http.StatusBadRequest &&
		r.says("model") && r.says("does not exist", "not found", "unknown model", "invalid model")
}

func (r *refusal) says(phrases ...string) bool {
	text := strings.ToLower(r.message)
	for _, phrase := range phrases {
		if strings.Contains(text, phrase) {
			return true
		}
	}
	return false
}

// statusError reads the answer to a request that was not accepted.
func (p *Provider) statusError(resp *http.Response, in io.Reader, model string) error {
	const most = 64 << 10
	data, _ := io.ReadAll(io.LimitReader(in, most)) // what came of it
	r := readRefusal(data)
	if r == nil {
		r = &refusal{message: string(data)}
	}
	r.status, r.retry = resp.StatusCode, retryAfter(resp.Header, time.Now())
	if to, err := resp.Location(); err == nil && resp.StatusCode < 400 {
		r.message = "to " + to.Scheme + "://" + to.Host + ", which is not followed: set it as the base URL if it is right"
	}
	return p.judge(r, model)
}

// readRefusal finds an error object in one of its forms: {"error": {…}},
// {"error": "text"}, {"object": "error", "message": …}, {"detail": …}.
func readRefusal(data []byte) *refusal {
	var w struct {
		Error   json.RawMessage `json:"error"`
		Object  text            `json:"object"`
		Message text            `json:"message"`
		Type    text            `json:"type"`
		Code    text            `json:"code"`
		Detail  text            `json:"detail"`
		Choices json.RawMessage `json:"choices"`
	}
	_ = json.Unmarshal(data, &w) // what is no JSON object has none of the fields
	switch raw := trim(w.Error); {
	case len(raw) > 2 && raw[0] == '{':
		return readErrorObject(raw)
	case len(raw) > 2 && raw[0] == '"':
		return &refusal{message: unquoted(raw)}
	case w.Object.String() == "error":
		return &refusal{code: w.Code.String(), kind: w.Type.String(), message: w.Message.String()}
	case len(w.Detail) > 0 && w.Choices == nil:
		return &refusal{message: w.Detail.String()}
	}
	return nil
}

func readErrorObject(raw json.RawMessage) *refusal {
	var w struct {
		Message text `json:"message"`
		Type    text `json:"type"`
		Code    text `json:"code"`
		Status  text `json:"status"`
	}
	if json.Unmarshal(raw, &w) != nil {
		return &refusal{message: string(raw)}
	}
	r := &refusal{code: w.Code.String(), kind: w.Type.String(), message: w.Message.String()}
	if r.code == "" {
		r.code = w.Status.String()
	}
	return r
}

// retryAfter reads how long to wait, at most an hour; 0 if the server does not say.
func retryAfter(h http.Header, now time.Time) time.Duration {
	const most = time.Hour
	if ms, err := strconv.ParseFloat(h.Get("Retry-After-Ms"), 64); err == nil && ms > 0 {
		return min(time.Duration(min(ms, 1e9))*time.Millisecond, most)
	}
	value := strings.TrimSpace(h.Get("Retry-After"))
	if s, err := strconv.ParseFloat(value, 64); err == nil && s > 0 {
		return min(time.Duration(min(s, 1e6)*float64(time.Second)), most)
	}
	if at, err := http.ParseTime(value); err == nil && at.After(now) {
		return min(at.Sub(now), most)
	}
	return 0
}

// streamError judges what ended a stream that had begun.
func (p *Provider) streamError(ctx context.Context, err error, model string) error {
	if e := p.ended(ctx); e != nil {
		return e
	}
	var r *refusal
	var own *frames.Error
	switch {
	case errors.As(err, &r):
		return p.judge(r, model)
	case errors.As(err, &own):
		return own.With(func(c *frames.Error) { c.Message = p.cfg.Name + ": " + c.Message })
	case errors.Is(err, errOverLimit), errors.Is(err, sse.ErrTooLarge):
		return p.errorf(frames.CodeTooLarge, "%w", err)
	}
	return repeatable(p.errorf(frames.CodeNoResult, "the stream broke off: %s%w", p.cause(err), quiet{err}))
}

// brokenOff is NO_RESULT: a stream that did not come to its end.
func brokenOff(what string) *frames.Error {
	return repeatable(frames.NewError(frames.CodeNoResult, "%s", what))
}

// repeatable marks the failure of a request that may be made again: a model
// request acts on nothing.
func repeatable(e *frames.Error) *frames.Error {
	return e.With(func(c *frames.Error) { c.Retryable, c.Effect = true, frames.EffectNone })
}

// transportError judges a request that got no answer.
func (p *Provider) transportError(ctx context.Context, err error) error {
	if e := p.ended(ctx); e != nil {
		return e
	}
	return p.errorf(frames.CodeUnavailable, "cannot reach %s: %s%w", p.where(), p.cause(err), quiet{err})
}

// ended gives the error of a request that was ended from our side, or nil.
func (p *Provider) ended(ctx context.Context) *frames.Error {
	if ctx.Err() == nil {
		return nil
	}
	cause := context.Cause(ctx)
	if errors.Is(cause, errSilent) {
		return repeatable(p.errorf(frames.CodeTimeout, "nothing came from %s for %s", p.where(), p.cfg.IdleTimeout))
	}
	if own, ok := errors.AsType[*frames.Error](cause); ok {
		return own
	}
	return frames.AsError(ctx.Err())
}

// cause gives the innermost words of a transport error: the outer ones repeat
// the URL.
func (p *Provider) cause(err error) string {
	if outer, ok := errors.AsType[*url.Error](err); ok {
		err = outer.Err
	}
	var dns *net.DNSError
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return "connection refused"
	case errors.As(err, &dns):
		return "no such host " + clip(dns.Name)
	}
	return strings.TrimPrefix(p.clean(err.Error()), ": ")
}

func (p *Provider) errorf(code frames.Code, format string, args ...any) *frames.Error {
	return frames.NewError(code, "%s: "+format, append([]any{p.cfg.Name}, args...)...)
}

// quiet keeps a cause for errors.Is; its words are given in the message, bounded.
type quiet struct{ error }

func (quiet) Error() string   { return "" }
func (q quiet) Unwrap() error { return q.error }

// where names the endpoint without its query.
func (p *Provider) where() string {
	return p.url.Scheme + "://" + p.url.Host + p.url.Path
}

// clean makes a server's words fit for an error: ": " and at most 500 bytes of
// one line, without the key. Without words it is empty.
func (p *Provider) clean(s string) string {
	const most = 500
	s = strings.ToValidUTF8(s, "\uFFFD")
	if p.cfg.APIKey != "" {
		s = strings.ReplaceAll(s, p.cfg.APIKey, "[key]")
	}
	s = strings.Join(strings.FieldsFunc(s, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }), " ")
	if s == "" {
		return ""
	}
	return ": " + cut(s, most)
}

func clip(s string) string { return cut(s, 100) }

// cut bounds s to most bytes, at a rune.
func cut(s string, most int) string {
	if len(s) <= most {
		return s
	}
	for most > 0 && !utf8.RuneStart(s[most]) {
		most--
	}
	return fmt.Sprintf("%s…", s[:most])
}
