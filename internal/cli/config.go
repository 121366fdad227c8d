package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kong"
	"github.com/goccy/go-yaml"

	"github.com/weavebus/weavebus/internal/yamltext"
	"github.com/weavebus/weavebus/pkg/frames"
)

// fileResolver gives flags the values of a configuration file. Flags on the
// command line and the environment win over it.
type fileResolver struct {
	path   string
	values map[string]any
}

var _ kong.Resolver = (*fileResolver)(nil)

// configFiles reads the user's own file, if it is there, and the one that
// --config or WEAVEBUS_CONFIG names, which wins.
func (c *console) configFiles(args []string) ([]kong.Resolver, error) {
	user, err := userConfig()
	if err != nil {
		return nil, err
	}
	var out []kong.Resolver
	for _, f := range []struct {
		path     string
		optional bool
	}{{user, true}, {namedConfig(args), false}} {
		r, err := c.readConfig(f.path, f.optional)
		if err != nil {
			return nil, err
		}
		if r != nil {
			out = append(out, r)
		}
	}
	return out, nil
}

// namedConfig finds --config before the command line is parsed.
func namedConfig(args []string) string {
	for i, a := range args {
		if a == "--" {
			break
		}
		if path, ok := strings.CutPrefix(a, "--config="); ok {
			return path
		}
		if a == "--config" && i+1 < len(args) {
			return args[i+1]
		}
	}
	return os.Getenv("WEAVEBUS_CONFIG")
}

func userConfig() (string, error) {
	if _, err := absoluteEnv("XDG_CONFIG_HOME"); err != nil {
		return "", errors.New(frames.AsError(err).Message)
	}
	dir := configHome()
	if dir == "" {
		return "", nil
	}
	return filepath.Join(dir, "config.yaml"), nil
}

// configHome is the user's configuration folder; empty where there is no home.
func configHome() string {
	if dir := os.Getenv("XDG_CONFIG_HOME"); dir != "" {
		return filepath.Join(dir, "weavebus")
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return ""
	}
	return filepath.Join(home, ".config", "weavebus")
}

func (c *console) readConfig(path string, optional bool) (*fileResolver, error) {
	if path == "" {
		return nil, nil //nolint:nilnil // no file is no resolver
	}
	text, err := c.readFile(path)
	if optional && errors.Is(err, fs.ErrNotExist) {
		return nil, nil //nolint:nilnil // likewise
	}
	if err != nil {
		return nil, badConfig(path, err)
	}
	r := &fileResolver{path: path}
	if err := r.parse(text); err != nil {
		return nil, badConfig(path, err)
	}
	return r, nil
}

// parse reads the file's text, which may be empty; a key's value may not.
func (r *fileResolver) parse(text []byte) error {
	if line := yamltext.TooDeep(text); line > 0 {
		return fmt.Errorf("line %d: nested too deep", line)
	}
	dec := yaml.NewDecoder(bytes.NewReader(text))
	if err := yamltext.Decode(dec, &r.values); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if err := yamltext.Decode(dec, new(any)); !errors.Is(err, io.EOF) {
		return errors.New("it holds more than one document")
	}
	for _, key := range slices.Sorted(maps.Keys(r.values)) {
		if value := r.values[key]; value == nil || value == "" {
			return fmt.Errorf("%s: is empty", key)
		}
	}
	return nil
}

// readFile reads a file that may be a pipe, of which nobody may write the other end.
func (c *console) readFile(path string) ([]byte, error) {
	type result struct {
		text []byte
		err  error
	}
	got := make(chan result, 1)
	go func() {
		text, err := readLimited(path)
		got <- result{text, err}
	}()
	late := time.NewTimer(configTime)
	defer late.Stop()
	select {
	case r := <-got:
		return r.text, r.err
	case <-late.C:
		return nil, fmt.Errorf("did not end within %v", configTime)
	case <-c.signals:
		return nil, frames.NewError(frames.CodeCancelled, "interrupted")
	}
}

// configTime is how long a configuration file may take.
const configTime = 10 * time.Second

// maxConfig bounds a configuration file, which may be named by mistake.
const maxConfig = 1 << 20

func readLimited(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // read only
	text, err := io.ReadAll(io.LimitReader(f, maxConfig+1))
	if err == nil && len(text) > maxConfig {
		err = fmt.Errorf("is over the limit of %d bytes", maxConfig)
	}
	return text, err
}

// badConfig is wrong use, like a wrong flag.
func badConfig(path string, err error) error {
	return fmt.Errorf("configuration file %s: %w", path, err)
}

// Validate refuses keys that are no flag.
func (r *fileResolver) Validate(app *kong.Application) error {
	known := map[string]bool{}
	var collect func(n *kong.Node)
	collect = func(n *kong.Node) {
		for _, f := range n.Flags {
			known[f.Name] = true
		}
		for _, child := range n.Children {
			collect(child)
		}
	}
	collect(app.Node)
	for _, key := range slices.Sorted(maps.Keys(r.values)) {
		if !known[key] {
			return badConfig(r.path, fmt.Errorf("there is no flag %q", key))
		}
	}
	return nil
}

// Resolve gives a flag's value, unless the environment has one.
func (r *fileResolver) Resolve(_ *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
	if slices.ContainsFunc(flag.Envs, func(name string) bool { return os.Getenv(name) != "" }) {
		return nil, nil //nolint:nilnil // kong's way to say: no value
	}
	return r.values[flag.Name], nil
}
