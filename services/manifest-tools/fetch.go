package manifesttools

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/weavebus/weavebus/pkg/frames"
)

// fetchLimit bounds the fetch of a manifest.
const fetchLimit = 15 * time.Second

func isURL(manifest string) bool { return strings.Contains(manifest, "://") }

// shownURL gives a URL for logs and lists: without what a query may hold.
func shownURL(u *url.URL) string {
	shown := *u
	shown.RawQuery, shown.User = "", nil
	return shown.String()
}

// fetcher fetches manifests. The operator named their URLs, so any address will do.
type fetcher struct{ client *http.Client }

func newFetcher() *fetcher {
	return &fetcher{newHTTPClient((&net.Dialer{Timeout: dialLimit}).DialContext)}
}

func (f *fetcher) close() { f.client.CloseIdleConnections() }

// fetch gets the text of a manifest.
func (f *fetcher) fetch(ctx context.Context, address string) ([]byte, error) {
	u, err := parseURL(address)
	if err != nil {
		return nil, invalid("Manifests: the URL %s", err)
	}
	ctx, cancel := context.WithTimeout(ctx, fetchLimit)
	defer cancel()
	data, err := f.get(ctx, u)
	if err != nil {
		return nil, frames.NewError(frames.CodeUnavailable, "Failed to fetch manifest from %q: %w", shownURL(u), withoutURL(err)).
			WithReason("manifest_unreachable")
	}
	return data, nil
}

func (f *fetcher) get(ctx context.Context, u *url.URL) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), http.NoBody)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", "weavebus")
	resp, err := f.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }() // what was needed of it was read
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("HTTP %d: %s", resp.StatusCode, statusText(resp.StatusCode))
	}
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxFile+1))
	if err == nil && len(data) > maxFile {
		err = fmt.Errorf("it is over the limit of %d bytes", maxFile)
	}
	return data, err
}
