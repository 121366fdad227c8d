package natsd

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/nats-io/nkeys"
)

const keyDir = "keys"

// SeedFile gives the path of an identity's seed in a state folder: what an
// outside process of that identity connects with.
func SeedFile(stateDir, identity string) string {
	return filepath.Join(stateDir, keyDir, identity+".nk")
}

// prepareStateDir makes the folder and its key folder, or says what is wrong
// with the one that stands there.
func prepareStateDir(dir string) error {
	if err := privateDir(dir); err != nil {
		return err
	}
	return privateDir(filepath.Join(dir, keyDir))
}

func privateDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return unavailable("state folder %s cannot be made: choose another with --state: %w", dir, err)
	}
	info, err := os.Stat(dir)
	if err != nil {
		return unavailable("state folder %s cannot be read: choose another with --state: %w", dir, err)
	}
	switch mode := info.Mode().Perm(); {
	case mode&0o700 != 0o700:
		return unavailable("state folder %s is not writable (mode %#o): chmod 700 it, or choose another with --state", dir, mode)
	case mode&0o077 != 0:
		return unavailable("state folder %s holds keys but is open to others (mode %#o): chmod 700 it", dir, mode)
	}
	return nil
}

// loadKeys reads the seed of each identity, and makes those that are missing.
func loadKeys(stateDir string, all []Identity) (map[string]nkeys.KeyPair, error) {
	keys := make(map[string]nkeys.KeyPair, len(all))
	for _, id := range all {
		pair, err := loadKey(SeedFile(stateDir, id.Name))
		if errors.Is(err, fs.ErrNotExist) {
			pair, err = createKey(SeedFile(stateDir, id.Name))
		}
		if err != nil {
			return nil, err
		}
		keys[id.Name] = pair
	}
	return keys, nil
}

func loadKey(path string) (nkeys.KeyPair, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, unavailable("key %s cannot be read: %w", path, err)
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		return nil, unavailable("key %s is open to others (mode %#o): chmod 600 it, or remove it to get a new one", path, mode)
	}
	seed, err := os.ReadFile(path)
	if err != nil {
		return nil, unavailable("key %s cannot be read: %w", path, err)
	}
	pair, err := nkeys.FromSeed(bytes.TrimSpace(seed))
	if err != nil {
		return nil, damaged(path, err)
	}
	if public, err := pair.PublicKey(); err != nil || !nkeys.IsValidPublicUserKey(public) {
		return nil, damaged(path, errors.Join(err, nkeys.ErrInvalidUserSeed))
	}
	return pair, nil
}

func damaged(path string, err error) error {
	return unavailable("key %s is not an nkey user seed: remove it to get a new one: %w", path, err)
}

// createKey writes a new seed in one step, so that a crash leaves none or a whole one.
func createKey(path string) (nkeys.KeyPair, error) {
	pair, err := nkeys.CreateUser()
	if err != nil {
		return nil, unavailable("key %s cannot be made: %w", path, err)
	}
	seed, err := pair.Seed()
	if err != nil {
		return nil, unavailable("key %s cannot be made: %w", path, err)
	}
	tmp := path + ".tmp"
	if err := os.WriteFile(tmp, append(seed, '\n'), 0o600); err != nil {
		return nil, unavailable("key %s cannot be written: %w", path, err)
	}
	if err := os.Rename(tmp, path); err != nil {
		return nil, unavailable("key %s cannot be written: %w", path, err)
	}
	return pair, nil
}
