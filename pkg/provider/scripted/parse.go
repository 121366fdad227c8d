package scripted

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/weavebus/weavebus/internal/yamltext"
	"github.com/weavebus/weavebus/pkg/frames"
	"github.com/weavebus/weavebus/pkg/provider"
)

// Parse reads a script file; the package comment has the format. The error is
// VALIDATION_INPUT and gives name and line.
func Parse(name string, data []byte) (*Script, error) {
	if line := yamltext.TooDeep(data); line > 0 {
		return nil, broken(name, fmt.Errorf("line %d: nested too deep", line))
	}
	var f file
	dec := yaml.NewDecoder(bytes.NewReader(data), yaml.Strict())
	if err := yamltext.Decode(dec, &f); err != nil && !errors.Is(err, io.EOF) {
		return nil, broken(name, err)
	}
	if err := yamltext.Decode(dec, new(file)); !errors.Is(err, io.EOF) {
		return nil, broken(name, errors.New("the file holds more than one document"))
	}
	s, err := f.script()
	if err != nil {
		return nil, broken(name, err)
	}
	return s, nil
}

// broken names the script in an error.
func broken(name string, err error) error {
	e := frames.NewError(frames.CodeValidationInput, "script %q: %s", name, bounded(yamltext.Message(err), 300))
	e.Retryable = false
	return e.WithReason("broken_script")
}

type file struct {
	Count count      `yaml:"count"`
	After after      `yaml:"after"`
	Turns []fileTurn `yaml:"turns"`
}

type fileTurn struct {
	Expect     string     `yaml:"expect"`
	Delay      span       `yaml:"delay"`
	ChunkDelay span       `yaml:"chunkDelay"`
	Thinking   chunks     `yaml:"thinking"`
	Text       chunks     `yaml:"text"`
	Calls      []fileCall `yaml:"calls"`
	Stop       stop       `yaml:"stop"`
	Usage      fileUsage  `yaml:"usage"`
	Error      *fileError `yaml:"error"`
}

type fileCall struct {
	ID            string `yaml:"id"`
	Name          string `yaml:"name"`
	Arguments     object `yaml:"arguments"`
	ArgumentsJSON chunks `yaml:"argumentsJson"`
}

type fileUsage struct {
	Input     int64 `yaml:"inputTokens"`
	Output    int64 `yaml:"outputTokens"`
	Total     int64 `yaml:"totalTokens"`
	Cached    int64 `yaml:"cachedTokens"`
	Reasoning int64 `yaml:"reasoningTokens"`
	Cost      int64 `yaml:"costMicros"`
}

type fileError struct {
	Code         code   `yaml:"code"`
	Message      string `yaml:"message"`
	Reason       string `yaml:"reason"`
	Retryable    *bool  `yaml:"retryable"`
	RetryAfterMs int64  `yaml:"retryAfterMs"`
}

func (f *file) script() (*Script, error) {
	s := &Script{PerUser: f.Count == "user", RepeatLast: f.After == "last"}
	if len(f.Turns) == 0 {
		return nil, errors.New("there are no turns")
	}
	for i := range f.Turns {
		turn, err := f.Turns[i].turn()
		if err != nil {
			return nil, fmt.Errorf("turn %d: %w", i+1, err)
		}
		s.Turns = append(s.Turns, turn)
	}
	return s, nil
}

func (f *fileTurn) turn() (Turn, error) {
	t := Turn{
		Expect: f.Expect, Delay: time.Duration(f.Delay), ChunkDelay: time.Duration(f.ChunkDelay),
		Thinking: f.Thinking, Text: f.Text, Stop: provider.StopReason(f.Stop), Usage: provider.Usage{
			InputTokens: f.Usage.Input, OutputTokens: f.Usage.Output, TotalTokens: f.Usage.Total,
			CachedTokens: f.Usage.Cached, ReasoningTokens: f.Usage.Reasoning, CostMicros: f.Usage.Cost,
		},
	}
	for i := range f.Calls {
		call, err := f.Calls[i].call()
		if err != nil {
			return Turn{}, fmt.Errorf("call %d: %w", i+1, err)
		}
		t.Calls = append(t.Calls, call)
	}
	var err error
	t.Error, err = f.Error.failure()
	return t, err
}

func (f *fileCall) call() (Call, error) {
	c := Call{ID: f.ID, Name: f.Name, Arguments: f.ArgumentsJSON}
	switch {
	case f.Name == "":
		return Call{}, errors.New("it has no name")
	case f.Arguments != "" && f.ArgumentsJSON != nil:
		return Call{}, errors.New("it has both arguments and argumentsJson")
	case f.Arguments != "":
		c.Arguments = []string{string(f.Arguments)}
	}
	return c, nil
}

func (f *fileError) failure() (*frames.Error, error) {
	if f == nil {
		return nil, nil //nolint:nilnil // no error in the script
	}
	if f.Code == "" {
		return nil, errors.New("the error has no code")
	}
	if f.Message == "" {
		f.Message = "the script says so"
	}
	e := frames.NewError(frames.Code(f.Code), "%s", f.Message)
	e.Reason, e.RetryAfter = f.Reason, time.Duration(f.RetryAfterMs)*time.Millisecond
	if f.Retryable != nil {
		e.Retryable = *f.Retryable
	}
	return e, nil
}
