package manifesttools

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/weavebus/weavebus/pkg/frames"
)

// maxSecret is how many bytes a secret may have.
const maxSecret = 8 << 10

// secrets gives what declarations may not hold themselves. Values stand in no error.
type secrets struct {
	rules   []secretRule
	environ []string
}

// allowed reports whether the operator allowed a declaration to use a secret for a
// host ("" is a command of this host). Hosts are compared with and without their port.
func (s *secrets) allowed(ref, host, hostPort string, remote bool) bool {
	return slices.ContainsFunc(s.rules, func(r secretRule) bool {
		switch {
		case r.ref != ref:
			return false
		case r.host == "":
			return !remote
		}
		return r.host == host || r.host == hostPort
	})
}

// variable gives a variable of the environment.
func (s *secrets) variable(name string) (value string, ok bool) {
	for _, kv := range s.environ {
		if v, found := strings.CutPrefix(kv, name+"="); found {
			return v, true
		}
	}
	return "", false
}

// value reads a secret: a file each time, so that it may be renewed.
func (s *secrets) value(ref string) (string, error) {
	v, ok := s.variable(ref)
	if filepath.IsAbs(ref) {
		var err error
		if v, err = readSecret(ref); err != nil {
			return "", frames.NewError(frames.CodeExecution, "cannot read the secret file %s: %w", ref, err).
				WithReason("secret").With(hideFromModel("a secret that the tool needs cannot be read; this is for the operator to mend"))
		}
	} else if !ok {
		return "", frames.NewError(frames.CodeExecution, "the variable %s is not set", ref).WithReason("secret")
	}
	v = strings.TrimRight(v, "\r\n")
	if strings.ContainsFunc(v, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }) {
		return "", frames.NewError(frames.CodeExecution, "the secret %s holds a control character, which no header may", ref).
			WithReason("secret").With(hideFromModel("a secret that the tool needs cannot be used; this is for the operator to mend"))
	}
	return v, nil
}

// hideFromModel gives an error another text for the model, and no effect: nothing
// was done yet.
func hideFromModel(text string) func(*frames.Error) {
	return func(e *frames.Error) { e.LLMMessage, e.Effect = text, frames.EffectNone }
}

func readSecret(path string) (string, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return "", err
	}
	data, err := readAndClose(f, maxSecret)
	if err == nil && len(data) > maxSecret {
		err = errors.New("it is over the limit of 8192 bytes")
	}
	return string(data), err
}
