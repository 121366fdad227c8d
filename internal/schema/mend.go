package schema

import (
	"bytes"
	"errors"
	"slices"
	"strconv"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"

	"github.com/weavebus/weavebus/internal/jsontext"
)

// RepairNested is the name of the repair that [Schema.Mend] makes: a string that
// holds JSON stands where only an array or object may.
const RepairNested = "nested_json_string"

// maxNested is how many strings may be around one value, and how deep in each
// other values may be that are strings.
const maxNested = 3

// Mend is [Schema.Validate] for arguments whose misfits say what was meant. A
// string that holds the JSON of an array or object is that value where the schema
// wants such a one, and no string, if the outcome fits as a whole: else the error
// is that of the text as it came. A member that is required and absent is its
// default. repairs names what was done; every value that was not touched stands in
// args byte for byte.
func (s *Schema) Mend(text []byte) (args []byte, repairs []string, err error) {
	if err = s.Validate(text); err == nil || jsontext.Check(text, jsontext.Limits{}) != nil {
		return text, nil, err
	}
	if filled, ok := s.filled(text); ok {
		return filled, nil, nil
	}
	for range maxNested {
		e := edits{value: s.misfits(text)}
		if text = e.apply(text); !e.done {
			return nil, nil, err
		}
		if fitting, err := s.Fit(text); err == nil {
			return fitting, []string{RepairNested}, nil
		}
	}
	return nil, nil, err
}

// misfitAt is what the schema holds against the value at one place, and against
// those inside it.
type misfitAt struct {
	types  []string // that would do
	others bool     // something else than its type is wrong
	inside map[string]*misfitAt
}

func (s *Schema) misfits(text []byte) *misfitAt {
	root := &misfitAt{}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return root
	}
	var failed error
	if done, err := s.work.run(func() { failed = s.root.Validate(value) }); !done || err != nil {
		return root
	}
	if e, ok := errors.AsType[*jsonschema.ValidationError](failed); ok {
		root.add(e)
	}
	return root
}

// add sorts the leaves of the validator's tree, those of every branch, by place.
func (m *misfitAt) add(e *jsonschema.ValidationError) {
	for _, c := range e.Causes {
		m.add(c)
	}
	if len(e.Causes) > 0 {
		return
	}
	at := m
	for _, token := range e.InstanceLocation {
		if at.inside == nil {
			at.inside = map[string]*misfitAt{}
		}
		if at.inside[token] == nil {
			at.inside[token] = &misfitAt{}
		}
		at = at.inside[token]
	}
	if k, ok := e.ErrorKind.(*kind.Type); ok {
		at.types = append(at.types, k.Want...)
	} else {
		at.others = true
	}
}

// wants reports whether JSON that begins so would do where a string does not.
func (m *misfitAt) wants(first byte) bool {
	if m.others || slices.Contains(m.types, "string") {
		return false
	}
	return first == '{' && slices.Contains(m.types, "object") || first == '[' && slices.Contains(m.types, "array")
}

// edits rewrites a text at its misfits.
type edits struct {
	value *misfitAt
	done  bool // something was changed
	out   bytes.Buffer
}

func (e *edits) apply(text []byte) []byte {
	e.write(bytes.TrimSpace(text), e.value)
	return e.out.Bytes()
}

func (e *edits) write(raw []byte, m *misfitAt) {
	switch {
	case m == nil:
		e.out.Write(raw)
	case raw[0] == '"':
		if inner := unwrapped(raw); len(inner) > 0 && m.wants(inner[0]) {
			raw, e.done = inner, true
		}
		e.out.Write(raw)
	case len(m.inside) == 0:
		e.out.Write(raw)
	case raw[0] == '{':
		e.object(raw, m)
	case raw[0] == '[':
		e.array(raw, m)
	default:
		e.out.Write(raw)
	}
}

func (e *edits) object(raw []byte, m *misfitAt) {
	e.out.WriteByte('{')
	first := true
	_ = jsontext.Members(raw, func(key, value []byte) error {
		separate(&e.out, &first)
		e.out.Write(key)
		e.out.WriteByte(':')
		e.write(value, m.inside[jsontext.Unquote(key)])
		return nil
	})
	e.out.WriteByte('}')
}

func (e *edits) array(raw []byte, m *misfitAt) {
	e.out.WriteByte('[')
	first, i := true, 0
	_ = jsontext.Items(raw, func(value []byte) error {
		separate(&e.out, &first)
		e.write(value, m.inside[strconv.Itoa(i)])
		i++
		return nil
	})
	e.out.WriteByte(']')
}

func separate(out *bytes.Buffer, first *bool) {
	if !*first {
		out.WriteByte(',')
	}
	*first = false
}

// unwrapped gives the array or object whose text a string literal holds, maybe in
// further strings; nil where it holds none.
func unwrapped(raw []byte) []byte {
	for range maxNested {
		raw = bytes.TrimSpace([]byte(jsontext.Unquote(raw)))
		if jsontext.Check(raw, jsontext.Limits{}) != nil {
			return nil
		}
		switch raw[0] {
		case '{', '[':
			return raw
		case '"':
		default:
			return nil
		}
	}
	return nil
}
