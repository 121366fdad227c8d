package session

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/weavebus/weavebus/internal/engine"
	"github.com/weavebus/weavebus/pkg/frames"
)

// PARAM keys of PROTOCOL section 7 that mean something to a session itself. The
// others are those of its runs, which package engine knows.
const (
	paramWorkspace     = "workspace"
	paramTask          = "task"
	paramNodeID        = "nodeId"
	paramSessionID     = "sessionId"
	paramMaxTurns      = "maxTurns"
	paramMessages      = "messages"
	paramModel         = "model"
	paramSystemPrompt  = "systemPrompt"
	paramToolExecution = "toolExecution"
	paramApproval      = "approval"
	paramTool          = "tool"
	paramRegisterTool  = "register-tool" // the same
)

// setter checks a parameter's JSON value and puts it into the state.
type setter func(s *State, key string, value json.RawMessage) error

// setterOf gives how a parameter is set.
func setterOf(key string) setter {
	switch key {
	case paramWorkspace:
		return beforeStart(label(func(s *State) *string { return &s.Workspace }))
	case paramTask:
		return beforeStart(label(func(s *State) *string { return &s.Task }))
	case paramNodeID:
		return beforeStart(label(func(s *State) *string { return &s.NodeID }))
	case paramSessionID:
		return setSessionID
	case paramMaxTurns:
		return setMaxTurns
	case paramToolExecution:
		return kept(oneOf(executionMesh, executionClient))
	case paramApproval:
		return kept(oneOf("ask", "deny"))
	case paramTool, paramRegisterTool:
		return setTool
	case paramMessages, paramSystemPrompt:
		return beforeStart(kept(engine.CheckParam))
	}
	return kept(engine.CheckParam)
}

// Who runs the calls of a model that drives the session from outside.
const (
	executionMesh   = "mesh"
	executionClient = "client"
)

const maxParamKey = 64

// setParam applies a PARAM.
func (s *State) setParam(f *frames.Frame) error {
	if err := checkKey(f.Key); err != nil {
		return err
	}
	if f.Value.Absent() {
		return invalid(f.Key, "has no value")
	}
	value, err := f.Value.JSON()
	if err != nil {
		return engine.ParamError(f.Key, err)
	}
	return setterOf(f.Key)(s, f.Key, value)
}

func checkKey(key string) error {
	if key == "" || len(key) > maxParamKey {
		return frames.NewError(frames.CodeValidationInput, "PARAM key of %d bytes, want 1 to %d", len(key), maxParamKey)
	}
	return nil
}

func invalid(key, format string, args ...any) error {
	return engine.ParamError(key, frames.NewError(frames.CodeValidationInput, format, args...))
}

func (s *State) keep(key string, value json.RawMessage) {
	if s.Params == nil {
		s.Params = map[string]json.RawMessage{}
	}
	s.Params[key] = value
}

// kept is a parameter that stays in Params once it was checked.
func kept(check func(key string, value json.RawMessage) error) setter {
	return func(s *State, key string, value json.RawMessage) error {
		if err := check(key, value); err != nil {
			return err
		}
		s.keep(key, value)
		return nil
	}
}

func beforeStart(set setter) setter {
	return func(s *State, key string, value json.RawMessage) error {
		if s.Initialized {
			return frames.NewError(frames.CodeConflict, "PARAM %s can only be set before START", key)
		}
		return set(s, key, value)
	}
}

func label(field func(*State) *string) setter {
	return func(s *State, key string, value json.RawMessage) error {
		text, err := textOf(key, value)
		if err == nil {
			*field(s) = text
		}
		return err
	}
}

// setSessionID holds a frame to its subject.
func setSessionID(s *State, key string, value json.RawMessage) error {
	text, err := textOf(key, value)
	if err == nil && text != s.SessionID {
		err = invalid(key, "%q is not this session, whose id is %q", text, s.SessionID)
	}
	return err
}

func setMaxTurns(s *State, key string, value json.RawMessage) error {
	n, err := engine.CountParam(value)
	switch {
	case err != nil:
		return engine.ParamError(key, err)
	case n < 1:
		return invalid(key, "must be at least 1")
	case n < int64(s.CurrentTurn):
		return invalid(key, "%d is below the %d turns that were used", n, s.CurrentTurn)
	}
	s.MaxTurns = int(n)
	return nil
}

func textOf(key string, value json.RawMessage) (string, error) {
	var text string
	if err := json.Unmarshal(value, &text); err != nil || text == "" {
		return "", invalid(key, "must be a text that is not empty")
	}
	return text, nil
}

func oneOf(words ...string) func(string, json.RawMessage) error {
	return func(key string, value json.RawMessage) error {
		text, err := textOf(key, value)
		if err != nil {
			return err
		}
		if slices.Contains(words, text) {
			return nil
		}
		return invalid(key, "%q is not one of %s", text, strings.Join(words, ", "))
	}
}
