package frames

import (
	"encoding/json"
	"math"
	"strconv"
)

// DeclarationFrom reads a declaration's content and checks it with
// [Declaration.Check]. Fields it does not know go to Extra. The error is
// VALIDATION_INPUT, or TOO_LARGE, with the place; beside it stands what could be
// read, to show what was refused.
func DeclarationFrom(c Raw) (*Declaration, error) {
	r := declarationReader{d: &Declaration{}}
	for k, v := range c.Pairs() {
		if !v.Absent() {
			r.field(k, v)
		}
	}
	r.d.Schema = r.schema(c, "schema")
	r.d.OutputSchema = r.schema(c, "outputSchema")
	if r.err != nil {
		return r.d, r.err
	}
	return r.d, r.d.Check()
}

// declarationReader reads fields until the first that is wrong.
type declarationReader struct {
	d   *Declaration
	err *Error
}

func (r *declarationReader) field(key string, v Raw) {
	d := r.d
	switch key {
	case "name":
		d.Name = r.str(key, v)
	case "title":
		d.Title = r.str(key, v)
	case "description":
		d.Description = r.str(key, v)
	case "version":
		d.Version = r.str(key, v)
	case "digest":
		d.Digest = r.str(key, v)
	case "service":
		d.Service = r.str(key, v)
	case "identity":
		d.Identity = r.str(key, v)
	case "instance":
		d.Instance = r.str(key, v)
	case "replay":
		d.Replay = r.str(key, v)
	case "executionMode":
		d.ExecutionMode = r.str(key, v)
	case "lockKey":
		d.LockKey = r.str(key, v)
	default:
		r.other(key, v)
	}
}

func (r *declarationReader) other(key string, v Raw) {
	d := r.d
	switch key {
	case "protocol":
		d.Protocol = r.count(key, v)
	case "timeoutMs":
		ms := r.int(key, v)
		d.TimeoutMs = &ms
	case "idleTimeoutMs":
		d.IdleTimeoutMs = r.int(key, v)
	case "retries":
		d.Retries = r.count(key, v)
	case "backoff":
		r.backoff(v)
	case "concurrency":
		d.Concurrency = r.count(key, v)
	case "transactional":
		d.Transactional = r.bool(key, v)
	case "reversible":
		d.Reversible = r.bool(key, v)
	case "encodings":
		d.Encodings = r.list(key, v)
	case "capabilities":
		d.Capabilities = r.list(key, v)
	case "keys":
		d.Keys = r.list(key, v)
	case "annotations":
		r.annotations(v)
	case "outputLimits":
		r.outputLimits(v)
	case "schema", "schemaJson", "outputSchema", "outputSchemaJson":
	default:
		d.Extra = append(d.Extra, Field{key, v})
	}
}

func (r *declarationReader) annotations(v Raw) {
	a := &r.d.Annotations
	flags := map[string]*bool{
		"readOnly": &a.ReadOnly, "destructive": &a.Destructive, "idempotent": &a.Idempotent,
		"openWorld": &a.OpenWorld, "expensive": &a.Expensive, "requiresConfirmation": &a.RequiresConfirmation, "polling": &a.Polling,
	}
	r.wantMap("annotations", v)
	for k, v := range v.Pairs() {
		switch flag := flags[k]; {
		case flag == nil:
			r.d.ExtraAnnotations = append(r.d.ExtraAnnotations, Field{k, v})
		case !v.Absent():
			*flag = r.bool("annotations/"+k, v)
		}
	}
}

func (r *declarationReader) backoff(v Raw) {
	r.wantMap("backoff", v)
	b := &r.d.Backoff
	for _, f := range []struct {
		key string
		ms  *int64
	}{{"baseMs", &b.BaseMs}, {"maxMs", &b.MaxMs}, {"totalMs", &b.TotalMs}} {
		if n := v.Lookup(f.key); !n.Absent() {
			*f.ms = r.int("backoff/"+f.key, n)
		}
	}
}

func (r *declarationReader) outputLimits(v Raw) {
	r.wantMap("outputLimits", v)
	l := &r.d.OutputLimits
	if n := v.Lookup("maxBytes"); !n.Absent() {
		l.MaxBytes = r.count("outputLimits/maxBytes", n)
	}
	if n := v.Lookup("maxLines"); !n.Absent() {
		l.MaxLines = r.count("outputLimits/maxLines", n)
	}
	if s := v.Lookup("retain"); !s.Absent() {
		l.Retain = r.str("outputLimits/retain", s)
	}
}

// schema reads a schema; nil, null and a blank text are none.
func (r *declarationReader) schema(c Raw, key string) json.RawMessage {
	text, err := payload(c, key, CodeValidationInput)
	if err != nil {
		r.fail(err)
	}
	if t := trimSpace(text); len(t) == 0 || string(t) == "null" {
		return nil
	}
	return text
}

func (r *declarationReader) fail(err *Error) {
	if r.err == nil {
		r.err = err
	}
}

func (r *declarationReader) want(key string, got Raw, want string) {
	r.fail(declarationError("/"+key, "is "+got.preview()+", want "+want))
}

// declarationError refuses a declaration for the field at path.
func declarationError(path, why string) *Error {
	e := NewError(CodeValidationInput, "tool declaration refused: %s %s", path, why)
	e.Issues = []Issue{{Path: path, Message: why}}
	return e
}

func (r *declarationReader) str(key string, v Raw) string {
	s, ok := v.Text()
	if !ok {
		r.want(key, v, "a string")
	}
	return s
}

func (r *declarationReader) bool(key string, v Raw) bool {
	b, ok := v.Bool()
	if !ok {
		r.want(key, v, "a bool")
	}
	return b
}

func (r *declarationReader) int(key string, v Raw) int64 {
	n, ok := v.Int64()
	if !ok || n < 0 {
		r.want(key, v, "a whole number, 0 or more")
	}
	return n
}

func (r *declarationReader) count(key string, v Raw) int {
	n := r.int(key, v)
	if n > math.MaxInt32 {
		r.want(key, v, "at most "+strconv.Itoa(math.MaxInt32))
	}
	return int(min(n, math.MaxInt32))
}

func (r *declarationReader) list(key string, v Raw) []string {
	if v.Kind() != KindArray {
		r.want(key, v, "a list of strings")
	}
	var out []string
	for item := range v.Items() {
		out = append(out, r.str(key+"/"+strconv.Itoa(len(out)), item))
	}
	return out
}

func (r *declarationReader) wantMap(key string, v Raw) {
	if v.Kind() != KindMap {
		r.want(key, v, "a map")
	}
}
