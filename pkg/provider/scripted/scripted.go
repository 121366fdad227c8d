package scripted

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/weavebus/weavebus/pkg/frames"
	"github.com/weavebus/weavebus/pkg/provider"
)

// demoName is the built-in model.
const demoName = "demo"

// maxFileBytes is how long a script file may be.
const maxFileBytes = 1 << 20

// Config is what [New] takes.
type Config struct {
	// Scripts are models by name; demo is taken. Default: none.
	Scripts map[string]*Script
	// Files is a folder of scripts, read anew for each request. Default: none.
	Files fs.FS
}

// Provider plays scripts. It is safe for concurrent use.
type Provider struct{ cfg Config }

var (
	_ provider.Provider = (*Provider)(nil)
	_ provider.Lister   = (*Provider)(nil)
)

// New makes a provider; it reads no file. Its error names the script.
func New(cfg Config) (*Provider, error) {
	for name, script := range cfg.Scripts {
		switch {
		case name == "" || name == demoName:
			return nil, frames.NewError(frames.CodeValidationInput, "scripted: Config.Scripts: the name %q is taken", name)
		case script == nil || len(script.Turns) == 0:
			return nil, frames.NewError(frames.CodeValidationInput, "scripted: Config.Scripts: script %q has no turns", name)
		}
	}
	return &Provider{cfg: cfg}, nil
}

// Name is scripted.
func (*Provider) Name() string { return "scripted" }

// Stream implements [provider.Provider].
func (p *Provider) Stream(ctx context.Context, req *provider.Request) iter.Seq2[provider.Event, error] {
	return func(yield func(provider.Event, error) bool) {
		if err := p.stream(ctx, req, yield); err != nil && !errors.Is(err, errLeft) {
			yield(nil, frames.AsError(err))
		}
	}
}

func (p *Provider) stream(ctx context.Context, req *provider.Request, yield func(provider.Event, error) bool) error {
	turn, n, err := p.turn(req)
	if err != nil {
		return err
	}
	return turn.play(ctx, n, yield)
}

func (p *Provider) turn(req *provider.Request) (*Turn, int, error) {
	if req.Model == demoName {
		turn, n := demoTurn(req)
		return turn, n, nil
	}
	script, err := p.script(req.Model)
	if err != nil {
		return nil, 0, err
	}
	turn, n, err := script.turn(req)
	if err != nil {
		return nil, 0, err
	}
	return turn, n, turn.meets(req, n)
}

func (p *Provider) script(name string) (*Script, error) {
	if s := p.cfg.Scripts[name]; s != nil {
		return s, nil
	}
	if p.cfg.Files != nil {
		for _, path := range candidates(name) {
			data, err := readFile(p.cfg.Files, path)
			if err == nil {
				return Parse(path, data)
			}
			if !errors.Is(err, fs.ErrNotExist) {
				return nil, err
			}
		}
	}
	return nil, frames.NewError(frames.CodeNotFound, "no script %q; there are: %s", bounded(name, 100), p.listing())
}

// listing names the models for an error.
func (p *Provider) listing() string {
	const most = 20
	models := p.Models()
	if len(models) > most {
		models = append(models[:most], "…")
	}
	return strings.Join(models, ", ")
}

var extensions = []string{".yaml", ".yml", ".json"}

// candidates gives the files that a model name may stand for.
func candidates(name string) []string {
	if !fs.ValidPath(name) || name == "." {
		return nil
	}
	out := []string{name}
	for _, ext := range extensions {
		out = append(out, name+ext)
	}
	return out
}

// readFile reads a script file; a folder does not exist as a file.
func readFile(files fs.FS, path string) ([]byte, error) {
	f, err := files.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fs.ErrNotExist
	}
	if err != nil {
		return nil, unreadable(path, err)
	}
	defer f.Close() //nolint:errcheck // read only
	if info, err := f.Stat(); err != nil || info.IsDir() {
		return nil, fs.ErrNotExist
	}
	data, err := io.ReadAll(io.LimitReader(f, maxFileBytes+1))
	switch {
	case err != nil:
		return nil, unreadable(path, err)
	case len(data) > maxFileBytes:
		return nil, frames.NewError(frames.CodeTooLarge, "script %q is over the limit of %d bytes", path, maxFileBytes)
	}
	return data, nil
}

// unreadable says why without a path of the host.
func unreadable(path string, err error) error {
	if at, ok := errors.AsType[*fs.PathError](err); ok {
		err = at.Err
	}
	return frames.NewError(frames.CodeUnavailable, "script %q cannot be read: %w", path, err)
}

// Models gives demo, the scripts, and the files without their extension.
func (p *Provider) Models() []string {
	names := []string{demoName}
	for name := range p.cfg.Scripts {
		names = append(names, name)
	}
	if p.cfg.Files != nil {
		names = append(names, fileNames(p.cfg.Files)...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// fileNames lists script files, at most the first 1000 entries of the folder.
func fileNames(files fs.FS) []string {
	left := 1000
	var out []string
	_ = fs.WalkDir(files, ".", func(path string, entry fs.DirEntry, err error) error {
		if left--; left < 0 {
			return fs.SkipAll
		}
		if err != nil || entry.IsDir() {
			return nil //nolint:nilerr // what cannot be read is not listed
		}
		for _, ext := range extensions {
			if name, ok := strings.CutSuffix(path, ext); ok {
				out = append(out, name)
			}
		}
		return nil
	})
	return out
}

// bounded cuts s to most bytes, at a rune.
func bounded(s string, most int) string {
	if len(s) <= most {
		return s
	}
	for most > 0 && !utf8.RuneStart(s[most]) {
		most--
	}
	return fmt.Sprintf("%s…", s[:most])
}
