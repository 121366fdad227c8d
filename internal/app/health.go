package app

import (
	"encoding/json"
	"net/http"
	"sync"
)

// state of a service, as /readyz shows it.
type state string

const (
	stateStarting state = "starting"
	stateReady    state = "ready"
	stateEnded    state = "ended"
)

// health answers /livez always and /readyz while all services are ready and
// none drains.
type health struct {
	mu       sync.Mutex
	draining bool
	services map[string]state
}

func newHealth() *health { return &health{services: map[string]state{}} }

func (h *health) set(name string, s state) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.services[name] = s
}

func (h *health) drain() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.draining = true
}

// report is the body of /readyz.
type report struct {
	Ready    bool             `json:"ready"`
	Draining bool             `json:"draining"`
	Services map[string]state `json:"services"`
}

func (h *health) report() report {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := report{Ready: !h.draining, Draining: h.draining, Services: map[string]state{}}
	for name, s := range h.services {
		out.Services[name] = s
		out.Ready = out.Ready && s == stateReady
	}
	return out
}

func (h *health) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("ok\n")) // a reader that is gone needs no answer
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		now := h.report()
		w.Header().Set("Content-Type", "application/json")
		if !now.Ready {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_ = json.NewEncoder(w).Encode(now)
	})
	return mux
}
