package provider

import (
	"fmt"
	"slices"
	"strings"

	"github.com/weavebus/weavebus/pkg/frames"
)

// Set is a fixed set of providers. It is not changed after [NewSet] and safe
// for concurrent use.
type Set struct{ byName map[string]Provider }

// NewSet makes a set. Two providers of one name, or a name that is empty or
// holds a slash, are CONFLICT or VALIDATION_INPUT.
func NewSet(providers ...Provider) (*Set, error) {
	s := &Set{byName: make(map[string]Provider, len(providers))}
	for _, p := range providers {
		name := p.Name()
		if name == "" || strings.ContainsAny(name, "/ .*>") {
			return nil, frames.NewError(frames.CodeValidationInput, "provider name %q is not a single token", name)
		}
		if _, taken := s.byName[name]; taken {
			return nil, frames.NewError(frames.CodeConflict, "provider %q is given twice", name)
		}
		s.byName[name] = p
	}
	return s, nil
}

// SplitModel splits "provider/model" at the first slash; the model's own name
// may hold more of them. A missing part is NOT_FOUND.
func SplitModel(model string) (provider, name string, err error) {
	provider, name, _ = strings.Cut(model, "/")
	if provider == "" || name == "" {
		return "", "", frames.NewError(frames.CodeNotFound,
			"model %q does not name a provider and a model: write provider/model", brief(model))
	}
	return provider, name, nil
}

// Resolve finds the provider of "provider/model" and gives the model's own
// name. An unknown provider or a missing part is NOT_FOUND that lists what exists.
func (s *Set) Resolve(model string) (Provider, string, error) {
	token, name, err := SplitModel(model)
	if err != nil {
		return nil, "", s.notFound(frames.AsError(err).Message)
	}
	p, ok := s.byName[token]
	if !ok {
		return nil, "", s.notFound(fmt.Sprintf("no provider %q for model %q", brief(token), brief(model)))
	}
	return p, name, nil
}

// Names gives the providers' names, sorted.
func (s *Set) Names() []string {
	names := make([]string, 0, len(s.byName))
	for name := range s.byName {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func (s *Set) notFound(what string) error {
	return frames.NewError(frames.CodeNotFound, "%s; there are: %s", what, s.listing())
}

// listing names the models of providers that can list them, and
// "provider/<model>" for the others.
func (s *Set) listing() string {
	const most = 20
	var out []string
	for _, name := range s.Names() {
		l, ok := s.byName[name].(Lister)
		if !ok {
			out = append(out, name+"/<model>")
			continue
		}
		for _, model := range l.Models() {
			out = append(out, name+"/"+model)
		}
	}
	if len(out) == 0 {
		return "none"
	}
	if len(out) > most {
		out = append(out[:most], "…")
	}
	return strings.Join(out, ", ")
}
