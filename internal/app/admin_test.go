package app_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/weavebus/weavebus/internal/app"
	"github.com/weavebus/weavebus/pkg/frames"
)

// probe asks the admin port as an orchestrator does.
type probe struct {
	t      *testing.T
	addr   net.Addr
	client http.Client
}

func (p *probe) expect(path string, status int, body string) {
	p.t.Helper()
	req, err := http.NewRequestWithContext(p.t.Context(), http.MethodGet, "http://"+p.addr.String()+path, http.NoBody)
	if err != nil {
		p.t.Fatal(err)
	}
	resp, err := p.client.Do(req)
	if err != nil {
		p.t.Fatal(err)
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != status || strings.TrimSpace(string(got)) != body {
		p.t.Errorf("%s: %d %s (%v), want %d %s", path, resp.StatusCode, got, err, status, body)
	}
}

func TestProbes(t *testing.T) {
	t.Parallel()
	opened, ready := make(chan net.Addr, 1), make(chan struct{})
	serve, drain := make(chan struct{}), make(chan struct{})
	asked := make(chan struct{})
	signals := make(chan os.Signal, 1)
	cfg := app.Config{
		Signals: signals, AdminAddr: ":0",
		OnAdmin: func(addr net.Addr) { opened <- addr },
		OnReady: func() { close(ready) },
		Services: []app.Service{{Name: "router", Stage: app.StageRouter, Run: func(ctx context.Context, _ app.Env, ready func()) error {
			<-serve
			ready()
			<-ctx.Done()
			close(asked)
			<-drain
			return nil
		}}},
	}
	result := make(chan error, 1)
	go func() { result <- app.Run(context.Background(), cfg) }()

	p := &probe{t: t, addr: <-opened, client: http.Client{Transport: &http.Transport{DisableKeepAlives: true}}}
	if ip := p.addr.(*net.TCPAddr).IP; !ip.IsLoopback() {
		t.Errorf("listens on %v without being told", ip)
	}
	p.expect("/livez", 200, "ok")
	p.expect("/readyz", 503, `{"ready":false,"draining":false,"services":{"router":"starting"}}`)
	close(serve)
	<-ready
	p.expect("/readyz", 200, `{"ready":true,"draining":false,"services":{"router":"ready"}}`)
	signals <- syscall.SIGTERM
	<-asked
	p.expect("/readyz", 503, `{"ready":false,"draining":true,"services":{"router":"ready"}}`)
	p.expect("/livez", 200, "ok")
	close(drain)
	if err := <-result; err != nil {
		t.Error(err)
	}
	if conn, err := net.Dial("tcp", p.addr.String()); err == nil {
		conn.Close()
		t.Error("the admin port is still open")
	}
}

func TestAdminPortTaken(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	cfg := app.Config{AdminAddr: l.Addr().String(), Services: []app.Service{{
		Name: "router", Stage: app.StageRouter, Run: func(context.Context, app.Env, func()) error {
			t.Error("started without its admin port")
			return nil
		},
	}}}
	wantError(t, app.Run(t.Context(), cfg), frames.CodeUnavailable, 4, "is taken")
}
