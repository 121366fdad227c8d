package cli

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

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
	base := os.Getenv("XDG_STATE_HOME")
	if base == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", frames.NewError(frames.CodeUnavailable, "no home folder to keep state in: give one with --state: %w", err)
		}
		base = filepath.Join(home, ".local", "state")
	}
	return filepath.Join(base, "weavebus", c.Mesh), nil
}

// readMeshFile gives the mesh that a state folder names; nil where it names none.
func readMeshFile(dir string) *meshFile {
	text, err := os.ReadFile(filepath.Join(dir, meshFileName))
	if err != nil {
		return nil
	}
	m := &meshFile{}
	if json.Unmarshal(text, m) != nil || m.URL == "" {
		return nil
	}
	return m
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
