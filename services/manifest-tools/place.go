package manifesttools

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/weavebus/weavebus/internal/jsontext"
	"github.com/weavebus/weavebus/pkg/frames"
)

// place is a JSON Pointer into a file of declarations.
type place string

func (at place) in(token string) place { return at + place(jsontext.Pointer(token)) }

// refuse is the error of what stands at the place.
func (at place) refuse(format string, args ...any) *frames.Error {
	why := fmt.Sprintf(format, args...)
	path := jsontext.Clip(string(at), jsontext.MaxPath)
	e := refused("%s: %s", cmp.Or(path, "the file"), why)
	e.Issues = []frames.Issue{{Path: path, Message: why}}
	return e
}

// refused places what is wrong with the declaration that begins here.
func (at place) refused(err error) *frames.Error {
	e := frames.AsError(err)
	if len(e.Issues) == 0 {
		return e.With(func(e *frames.Error) {
			e.Message = cmp.Or(string(at), "the tool") + ": " + e.Message
			e.Retryable, e.Reason = false, "bad_manifest"
		})
	}
	i := e.Issues[0]
	placed := (at + place(i.Path)).refuse("%s", i.Message)
	if e.Code != frames.CodeValidationInput {
		placed = placed.With(func(p *frames.Error) { p.Code, p.Message = e.Code, e.Message })
	}
	return placed
}

// object reads an object's members; keys do not repeat, as that was checked.
func (at place) object(text json.RawMessage) (map[string]json.RawMessage, error) {
	if len(text) == 0 || strings.TrimLeft(string(text), " \t\r\n")[0] != '{' {
		return nil, at.refuse("is %s, want an object", show(text))
	}
	members := map[string]json.RawMessage{}
	err := jsontext.Members(text, func(key, value []byte) error {
		members[jsontext.Unquote(key)] = value
		return nil
	})
	return members, err
}

// known refuses members that are none of the keys, and do not begin with x-.
func (at place) known(members map[string]json.RawMessage, keys ...string) error {
	for _, key := range slices.Sorted(maps.Keys(members)) {
		if !slices.Contains(keys, key) && !extra(key) {
			slices.Sort(keys)
			return at.in(key).refuse("is no key that is read here; those are %s, and x-… of your own", strings.Join(keys, ", "))
		}
	}
	return nil
}

// knownIn is known for an object that was not read yet.
func (at place) knownIn(text json.RawMessage, keys ...string) error {
	members, err := at.object(text)
	if err != nil {
		return err
	}
	return at.known(members, slices.Clone(keys)...)
}

func (at place) list(text json.RawMessage) ([]json.RawMessage, error) {
	if len(text) == 0 || text[0] != '[' {
		return nil, at.refuse("is %s, want a list", show(text))
	}
	var items []json.RawMessage
	err := jsontext.Items(text, func(v []byte) error {
		items = append(items, v)
		return nil
	})
	return items, err
}

func (at place) text(v json.RawMessage) (string, error) {
	if len(v) == 0 || v[0] != '"' {
		return "", at.refuse("is %s, want a text", show(v))
	}
	s := jsontext.Unquote(v)
	if strings.ContainsRune(s, 0) {
		return "", at.refuse("holds a zero byte")
	}
	return s, nil
}

// texts reads a list of texts; none for a missing one.
func (at place) texts(v json.RawMessage, most int) ([]string, error) {
	if isNull(v) {
		return nil, nil
	}
	items, err := at.list(v)
	if err != nil {
		return nil, err
	}
	if len(items) > most {
		return nil, at.refuse("has %d entries, the limit is %d", len(items), most)
	}
	var out []string
	for i, item := range items {
		s, err := (at + place(fmt.Sprintf("/%d", i))).text(item)
		if err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	return out, nil
}
