package openai_test

import (
	"io"
	"net/http"
	"testing"

	"github.com/weavebus/weavebus/pkg/provider/openai"
)

// roundTrip is a transport without a network.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// piecesReader gives one piece a read.
type piecesReader struct{ pieces []string }

func (p *piecesReader) Read(b []byte) (int, error) {
	if len(p.pieces) == 0 {
		return 0, io.EOF
	}
	n := copy(b, p.pieces[0])
	if p.pieces[0] = p.pieces[0][n:]; p.pieces[0] == "" {
		p.pieces = p.pieces[1:]
	}
	return n, nil
}

func (*piecesReader) Close() error { return nil }

func answerWith(status int, contentType string, body io.ReadCloser) *http.Response {
	return &http.Response{StatusCode: status, Header: http.Header{"Content-Type": {contentType}}, Body: body}
}

// fake gives a provider whose answers are pieces, without a network.
func fake(t *testing.T, pieces []string, change ...func(*openai.Config)) *openai.Provider {
	t.Helper()
	return transport(t, func(*http.Request) (*http.Response, error) {
		return answerWith(http.StatusOK, "text/event-stream", &piecesReader{append([]string(nil), pieces...)}), nil
	}, change...)
}

func transport(t *testing.T, f roundTrip, change ...func(*openai.Config)) *openai.Provider {
	t.Helper()
	cfg := openai.Config{BaseURL: "http://model.test/v1", HTTPClient: &http.Client{Transport: f}}
	for _, c := range change {
		c(&cfg)
	}
	return newProvider(t, cfg)
}
