package cli

import (
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/weavebus/weavebus/internal/app"
	"github.com/weavebus/weavebus/pkg/frames"
	"github.com/weavebus/weavebus/pkg/hook"
	"github.com/weavebus/weavebus/pkg/provider"
	"github.com/weavebus/weavebus/pkg/provider/openai"
	"github.com/weavebus/weavebus/pkg/provider/scripted"
	"github.com/weavebus/weavebus/services/harness"
	"github.com/weavebus/weavebus/services/llm"
	"github.com/weavebus/weavebus/services/loop"
	manifesttools "github.com/weavebus/weavebus/services/manifest-tools"
	"github.com/weavebus/weavebus/services/router"
	workspacetools "github.com/weavebus/weavebus/services/workspace-tools"
)

// role is a service that a process may run.
type role struct {
	name, help string
	make       func(r *roleConfig) (app.Service, error)
}

// roleConfig is what the roles are made of.
type roleConfig struct {
	models     models
	hooks      []hook.Hook
	workspaces []workspacetools.Workspace
	private    []string // folders that no workspace may touch
	allowRoot  bool
	environ    []string
	manifests  manifesttools.Config
}

// roles lists every role; dependents come after what they depend on.
func roles() []role {
	return []role{
		{"harness", "keeps sessions", func(*roleConfig) (app.Service, error) { return harness.New(harness.Config{}), nil }},
		{"llm", "puts models on the bus", newLLM},
		{"workspace-tools", "files and commands of workspaces", newWorkspaceTools},
		{"manifest-tools", "tools declared in files: programs and HTTP endpoints", newManifestTools},
		{"router", "dispatches the calls of clients", func(cfg *roleConfig) (app.Service, error) { return router.New(router.Config{Hooks: cfg.hooks}), nil }},
		{"loop", "runs the loop between models and tools", func(cfg *roleConfig) (app.Service, error) { return loop.New(loop.Config{Hooks: cfg.hooks}), nil }},
	}
}

func roleNames() string {
	var names []string
	for _, r := range roles() {
		names = append(names, r.name)
	}
	return strings.Join(names, ", ")
}

// services makes the services of the named roles.
func (cfg *roleConfig) services(names ...string) ([]app.Service, error) {
	var out []app.Service
	for _, name := range names {
		i := slices.IndexFunc(roles(), func(r role) bool { return r.name == name })
		if i < 0 {
			return nil, frames.NewError(frames.CodeNotFound, "no role %q; there is %s", name, roleNames()).WithReason("no_such_role")
		}
		s, err := roles()[i].make(cfg)
		if err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	return out, nil
}

// meshRoles are those that every whole mesh has.
var meshRoles = []string{"harness", "llm", "router", "loop"} //nolint:gochecknoglobals // a constant list

// models are the flags of the model providers.
type models struct {
	OpenAIBaseURL string   `name:"openai-base-url" placeholder:"URL" help:"Endpoint of openai/… models: any that speaks OpenAI's chat completions." env:"OPENAI_BASE_URL"`
	OpenAIKey     string   `name:"openai-api-key" placeholder:"KEY" help:"Its key. Better kept in the environment: flags are seen by other users." env:"OPENAI_API_KEY"`
	Price         []string `name:"price" sep:"none" placeholder:"MODEL=IN/OUT[/CACHED]" help:"US dollars for a million tokens of a model, as openai/gpt-5-mini=0.25/2, for the ledger of sessions; may be repeated. What an endpoint says itself counts first. For the mesh or roles that this command starts."`
	Scripts       string   `name:"scripts" placeholder:"DIR" help:"Folder with the scripts of scripted/… models." type:"existingdir"`
}

func newLLM(cfg *roleConfig) (app.Service, error) {
	providers, err := cfg.models.providers()
	if err != nil {
		return app.Service{}, err
	}
	prices, err := cfg.models.prices()
	if err != nil {
		return app.Service{}, err
	}
	return llm.New(llm.Config{Providers: providers, Prices: prices}), nil
}

func (m *models) prices() (map[string]provider.Price, error) {
	prices := map[string]provider.Price{}
	for _, text := range m.Price {
		model, amounts, _ := strings.Cut(text, "=")
		price, err := provider.ParsePrice(amounts)
		if name, _, ok := strings.Cut(model, "/"); !ok || !frames.ValidName(name) || err != nil {
			return nil, usageError("--price %s: want PROVIDER/MODEL=IN/OUT[/CACHED], US dollars for a million tokens", text)
		}
		prices[model] = price
	}
	return prices, nil
}

func (m *models) providers() ([]provider.Provider, error) {
	s, err := scripted.New(scripted.Config{Files: m.files()})
	if err != nil {
		return nil, err
	}
	// The provider's own client reads no environment, so it knows no proxy.
	o, err := openai.New(openai.Config{BaseURL: m.OpenAIBaseURL, APIKey: m.OpenAIKey, HTTPClient: &http.Client{}})
	if err != nil {
		return nil, wrongUse("--openai-base-url (OPENAI_BASE_URL)", err)
	}
	return []provider.Provider{s, o}, nil
}

func newWorkspaceTools(cfg *roleConfig) (app.Service, error) {
	c := workspacetools.Config{
		Workspaces: cfg.workspaces, Environ: cfg.environ, Private: cfg.private, AllowRoot: cfg.allowRoot,
	}
	if err := c.Check(); err != nil {
		return app.Service{}, wrongUse("--workspace", err)
	}
	return workspacetools.New(c), nil
}

// wrongUse names the flag whose value a service refuses.
func wrongUse(flag string, err error) error {
	if frames.CodeOf(err) != frames.CodeValidationInput {
		return err
	}
	return usageError("%s: %s", flag, frames.AsError(err).Message)
}

// manifestFlags are the flags of manifest-tools beside its folders.
type manifestFlags struct {
	Manifest     []string `name:"manifest" sep:"none" placeholder:"URL|FILE" help:"Published manifest whose tools to serve; may be repeated."`
	AllowPrivate []string `name:"allow-private" placeholder:"NETWORK" help:"Network that endpoints of manifests may lie in although it is not public: an address, 10.0.0.0/8, loopback, link-local, private or any; may be repeated."`
	AllowSecret  []string `name:"allow-secret" sep:"none" placeholder:"NAME|FILE[@HOST]" help:"Variable or file that manifests may use as a secret, for that host only; may be repeated."`
}

func (f *manifestFlags) config(dirs []string) manifesttools.Config {
	return manifesttools.Config{Dirs: dirs, Manifests: f.Manifest, AllowPrivate: f.AllowPrivate, AllowSecrets: f.AllowSecret}
}

func newManifestTools(cfg *roleConfig) (app.Service, error) {
	m := cfg.manifests
	m.Environ, m.AllowRoot = cfg.environ, cfg.allowRoot
	return manifesttools.New(m), nil
}

// settings is what commands that join the mesh are told of its models.
func (m *models) settings() meshModels {
	scripts := m.Scripts
	if path, err := filepath.Abs(scripts); scripts != "" && err == nil {
		scripts = path
	}
	return meshModels{OpenAIBaseURL: m.OpenAIBaseURL, OpenAIKey: m.OpenAIKey != "", Scripts: scripts}
}

// otherModels says which settings of this command a mesh that runs does not have:
// its own hold. Empty where nothing is different for the model.
func (m *models) otherModels(model string, running meshModels) string {
	asked := m.settings()
	switch provider, _, _ := strings.Cut(model, "/"); {
	case provider == "openai" && asked.OpenAIBaseURL != "" && asked.OpenAIBaseURL != running.OpenAIBaseURL:
		return "OPENAI_BASE_URL (--openai-base-url)"
	case provider == "openai" && asked.OpenAIKey && !running.OpenAIKey && running.OpenAIBaseURL == "":
		return "OPENAI_API_KEY"
	case provider == "scripted" && asked.Scripts != "" && asked.Scripts != running.Scripts:
		return "--scripts"
	}
	return ""
}

// files is the folder of scripts; nil where none was named.
func (m *models) files() fs.FS {
	if m.Scripts == "" {
		return nil
	}
	return os.DirFS(m.Scripts)
}
