package openai

import (
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/weavebus/weavebus/pkg/frames"
	"github.com/weavebus/weavebus/pkg/provider/export"
)

// DefaultBaseURL is OpenAI's own endpoint.
const DefaultBaseURL = "https://api.openai.com/v1"

// Config is what [New] takes.
type Config struct {
	// Name is the provider's name in model names. Default: openai.
	Name string
	// BaseURL is the endpoint without /chat/completions; a query is kept.
	// Default: [DefaultBaseURL].
	BaseURL string
	// APIKey goes out as a bearer token, to the host of BaseURL only. Default:
	// none, which OpenAI's own host refuses.
	APIKey string
	// HTTPClient sends the requests; its CheckRedirect is not used. Default: a
	// client of its own that uses no proxy and has no total time-out.
	HTTPClient *http.Client
	// MaxResponseBytes bounds one whole response. Default: 16 MiB.
	MaxResponseBytes int64
	// MaxEventBytes bounds one event of the stream. Default: 8 MiB.
	MaxEventBytes int
	// IdleTimeout is how long the server may be silent, before its answer and
	// between pieces of it. Default: 5 minutes; negative: no bound.
	IdleTimeout time.Duration
	// ShortCallIDs sends call ids of 9 letters and digits, as the chat templates
	// of Mistral models demand. Default: false.
	ShortCallIDs bool
	// ReplayThinking sends the model's reasoning back as reasoning_content, as
	// DeepSeek-like servers want it beside tool calls. Default: false.
	ReplayThinking bool
	// MaxTools is how many tools a request may have: more are TOO_LARGE before it is
	// sent. Default: 128, OpenAI's own limit; negative: no bound.
	MaxTools int
	// OmitStreamOptions leaves stream_options out, for servers that refuse it;
	// usage may then be missing. Default: false.
	OmitStreamOptions bool
}

func (c Config) withDefaults() Config {
	if c.Name == "" {
		c.Name = "openai"
	}
	if c.BaseURL == "" {
		c.BaseURL = DefaultBaseURL
	}
	if c.MaxTools == 0 {
		c.MaxTools = export.OpenAI.MaxTools()
	}
	if c.MaxResponseBytes == 0 {
		c.MaxResponseBytes = 16 << 20
	}
	if c.MaxEventBytes == 0 {
		c.MaxEventBytes = 8 << 20
	}
	if c.IdleTimeout == 0 {
		c.IdleTimeout = 5 * time.Minute
	}
	c.APIKey = strings.TrimSpace(c.APIKey)
	return c
}

func (c Config) validate() error {
	if c.MaxResponseBytes < 0 {
		return invalid("MaxResponseBytes", "is negative")
	}
	if c.MaxEventBytes < 0 {
		return invalid("MaxEventBytes", "is negative")
	}
	if strings.ContainsFunc(c.APIKey, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return invalid("APIKey", "holds a character that no key has")
	}
	return nil
}

// endpoint gives the URL of chat completions under BaseURL.
func (c Config) endpoint() (*url.URL, error) {
	const path = "/chat/completions"
	u, err := url.Parse(strings.TrimSpace(c.BaseURL))
	switch {
	case err != nil:
		return nil, invalid("BaseURL", "is not a URL: want one such as https://api.openai.com/v1 or http://127.0.0.1:8080/v1")
	case u.Scheme != "http" && u.Scheme != "https", u.Hostname() == "":
		return nil, invalid("BaseURL", "is not an http or https URL with a host: want one such as https://api.openai.com/v1")
	case u.User != nil:
		return nil, invalid("BaseURL", "holds credentials: put the key in APIKey")
	}
	u.Fragment = ""
	if u.Path == "" {
		u.Path = "/" // else the joined path lacks the slash, and errors show it so
	}
	if !strings.HasSuffix(strings.TrimRight(u.Path, "/"), path) {
		u = u.JoinPath(path)
	}
	return u, nil
}

func invalid(field, what string) error {
	return frames.NewError(frames.CodeValidationInput, "openai: Config.%s %s", field, what)
}
