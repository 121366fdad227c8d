package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/weavebus/weavebus/internal/assets"
	"github.com/weavebus/weavebus/pkg/frames"
)

// meshFile tells other processes of this user where the mesh of a state folder
// runs. It is a hint: who reads it connects, and takes a failure for a stale file.
type meshFile struct {
	URL     string `json:"url"`
	PID     int    `json:"pid"`
	Version string `json:"version"`
	Prefix  string `json:"prefix"`
	// Hooks are the flags that it was started with.
	Hooks []string `json:"hooks,omitempty"`
	// Models are the settings of its models, but for keys.
	Models meshModels `json:"models,omitzero"`
}

// meshModels is where the models of a mesh are.
type meshModels struct {
	OpenAIBaseURL string `json:"openaiBaseUrl,omitempty"`
	OpenAIKey     bool   `json:"openaiKey,omitempty"`
	Scripts       string `json:"scripts,omitempty"`
}

const meshFileName = "mesh.json"

// stateDir gives the state folder as an absolute path.
func (c *console) stateDir() (string, error) {
	if c.State != "" {
		return filepath.Abs(c.State)
	}
	if !frames.ValidName(c.Mesh) {
		return "", frames.NewError(frames.CodeValidationInput, "--mesh %q: want letters, digits, _ and -", c.Mesh)
	}
	base, err := absoluteEnv("XDG_STATE_HOME")
	if err != nil {
		return "", err
	}
	if base == "" {
		home, err := homeDir()
		if err != nil {
			return "", err
		}
		base = filepath.Join(home, ".local", "state")
	}
	return filepath.Join(base, "weavebus", c.Mesh), nil
}

func homeDir() (string, error) {
	home, err := os.UserHomeDir()
	switch {
	case err != nil:
		return "", frames.NewError(frames.CodeUnavailable, "no home folder to keep state in: give one with --state: %w", err)
	case !filepath.IsAbs(home):
		return "", usageError("HOME: %q is no absolute path", home)
	}
	return home, nil
}

// absoluteEnv gives a variable that names a folder; empty where it is not set.
func absoluteEnv(name string) (string, error) {
	dir := os.Getenv(name)
	if dir != "" && !filepath.IsAbs(dir) {
		return "", usageError("%s: %q is no absolute path", name, dir)
	}
	return dir, nil
}

// maxMeshFile bounds mesh.json, which holds one line.
const maxMeshFile = 64 << 10

// readMeshFile gives the mesh that a state folder names; nil where it names none.
func readMeshFile(dir string) (*meshFile, error) {
	path := filepath.Join(dir, meshFileName)
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil //nolint:nilnil // no file is no mesh
	}
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxMeshFile {
		return nil, fmt.Errorf("%s is not the file that a mesh writes", path)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	m := &meshFile{}
	if err := json.Unmarshal(text, m); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if checkNATS(m.URL) != nil || assets.CheckPrefix(m.Prefix) != nil {
		return nil, fmt.Errorf("%s names no mesh", path)
	}
	return m, nil
}

// write puts the file in place in one step.
func (m *meshFile) write(dir string) error {
	text, err := json.Marshal(m)
	if err != nil {
		return frames.NewError(frames.CodeInternal, "mesh.json: %w", err)
	}
	path := filepath.Join(dir, meshFileName)
	if err := os.WriteFile(path+".tmp", append(text, '\n'), 0o600); err != nil {
		return frames.NewError(frames.CodeUnavailable, "cannot write the state folder: %w", err)
	}
	if err := os.Rename(path+".tmp", path); err != nil {
		return frames.NewError(frames.CodeUnavailable, "cannot write the state folder: %w", err)
	}
	return nil
}

func removeMeshFile(dir string) error {
	if err := os.Remove(filepath.Join(dir, meshFileName)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return frames.NewError(frames.CodeUnavailable, "cannot clean the state folder: %w", err)
	}
	return nil
}

// environ gives the process's environment, for commands to pick from.
func environ() []string { return os.Environ() }
