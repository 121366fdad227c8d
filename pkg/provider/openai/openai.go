package openai

import (
	"bytes"
	"context"
	"errors"
	"io"
	"iter"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/weavebus/weavebus/internal/sse"
	"github.com/weavebus/weavebus/pkg/frames"
	"github.com/weavebus/weavebus/pkg/provider"
)

// Provider is a chat completions endpoint. It is safe for concurrent use.
type Provider struct {
	cfg    Config
	url    *url.URL
	client *http.Client
}

var _ provider.Provider = (*Provider)(nil)

// New makes a provider; it connects to nothing. Its error names the field.
func New(cfg Config) (*Provider, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	endpoint, err := cfg.endpoint()
	if err != nil {
		return nil, err
	}
	return &Provider{cfg: cfg, url: endpoint, client: ownClient(cfg.HTTPClient)}, nil
}

// ownClient copies a client, so that the copy's redirects are ours to judge.
func ownClient(given *http.Client) *http.Client {
	client := http.Client{}
	if given != nil {
		client = *given
	}
	if given == nil {
		client.Transport = &http.Transport{
			ForceAttemptHTTP2:   true,
			MaxIdleConnsPerHost: 16,
			IdleConnTimeout:     90 * time.Second,
			TLSHandshakeTimeout: 10 * time.Second,
		}
	}
	client.CheckRedirect = sameHost
	return &client
}

// sameHost follows a redirect that repeats the request at the host it was meant
// for; any other is given back as the answer, so that neither the key nor the
// conversation goes elsewhere.
func sameHost(next *http.Request, via []*http.Request) error {
	const most = 3
	first := via[0].URL
	if next.Method != http.MethodPost || next.URL.Scheme != first.Scheme || next.URL.Host != first.Host || len(via) > most {
		return http.ErrUseLastResponse
	}
	return nil
}

// Name gives Config.Name.
func (p *Provider) Name() string { return p.cfg.Name }

// Close closes idle connections. A stream that runs is not touched.
func (p *Provider) Close() error {
	p.client.CloseIdleConnections()
	return nil
}

// Stream implements [provider.Provider].
func (p *Provider) Stream(ctx context.Context, req *provider.Request) iter.Seq2[provider.Event, error] {
	return func(yield func(provider.Event, error) bool) {
		t := newTurn(yield)
		if err := p.stream(ctx, req, t); err != nil && !t.left {
			yield(nil, err)
		}
	}
}

// errSilent is the cause of a request that IdleTimeout ended.
var errSilent = errors.New("the server is silent")

func (p *Provider) stream(ctx context.Context, req *provider.Request, t *turn) error {
	if err := p.checkKey(); err != nil {
		return err
	}
	body, tools, err := p.body(req)
	if err != nil {
		return err
	}
	t.tools = tools
	watch, ctx := newWatch(ctx, p.cfg.IdleTimeout)
	defer watch.stop()
	resp, err := p.send(ctx, body)
	watch.pause()
	if err != nil {
		return p.transportError(ctx, err)
	}
	defer resp.Body.Close() //nolint:errcheck // read only
	in := &boundedBody{in: resp.Body, left: p.cfg.MaxResponseBytes, limit: p.cfg.MaxResponseBytes, watch: watch}
	if resp.StatusCode != http.StatusOK {
		return p.statusError(resp, in, req.Model)
	}
	if err := p.read(resp, in, t); err != nil {
		return p.streamError(ctx, err, req.Model)
	}
	return nil
}

func (p *Provider) send(ctx context.Context, body []byte) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url.String(), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "text/event-stream, application/json;q=0.5")
	req.Header.Set("User-Agent", "weavebus")
	if p.cfg.APIKey != "" {
		req.Header.Set("Authorization", "Bearer "+p.cfg.APIKey)
	}
	return p.client.Do(req)
}

// read takes the answer in either form: a stream, or one completion from a
// server that does not stream.
func (p *Provider) read(resp *http.Response, in io.Reader, t *turn) error {
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	switch {
	case kind == "text/html":
		return brokenOff("the server answered with a web page, not a stream: check the base URL")
	case strings.HasSuffix(kind, "json") && !strings.Contains(kind, "stream"):
		return readWhole(in, t)
	}
	return readStream(sse.NewReader(in, p.cfg.MaxEventBytes), t)
}

func readWhole(in io.Reader, t *turn) error {
	data, err := io.ReadAll(in)
	if err != nil {
		return err
	}
	if err := t.add(data); err != nil || t.left {
		return err
	}
	return t.end(true)
}

func readStream(events *sse.Reader, t *turn) error {
	for !t.left {
		event, err := events.Next()
		if errors.Is(err, io.EOF) {
			return t.end(false)
		}
		if err != nil {
			return err
		}
		done, err := t.event(event)
		if err != nil {
			return err
		}
		if done {
			return t.end(true)
		}
	}
	return nil
}

func (p *Provider) checkKey() error {
	if p.cfg.APIKey != "" || p.url.Hostname() != "api.openai.com" {
		return nil
	}
	return frames.NewError(frames.CodeDenied,
		"%s: no API key: set OPENAI_API_KEY where the mesh is started (weavebus up, or serve llm), or the base URL of a server that needs none",
		p.cfg.Name).WithReason("no_api_key")
}
