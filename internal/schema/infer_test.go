package schema_test

import (
	"bytes"
	"encoding/json"
	"math/big"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weavebus/weavebus/internal/schema"
	"github.com/weavebus/weavebus/pkg/frames"
)

type textKind string

type blob []byte

type ownJSON struct{ a int }

func (o ownJSON) MarshalJSON() ([]byte, error) { return json.Marshal(o.a) }

type point struct {
	X, Y int `json:",omitempty"`
}

type Common struct {
	Path string `json:"path" jsonschema:"a path within the workspace"`
	Note string `json:"note"`
}

type hidden struct {
	Depth int `json:"depth,omitzero"`
}

type everything struct {
	Common
	hidden
	*Late
	Named    Common            `json:"named"`
	Note     string            `json:"note,omitempty" jsonschema:"wins over the embedded one"`
	Flag     bool              `json:"flag"`
	Count    int               `json:"count"`
	Small    int8              `json:"small,omitempty"`
	Byte     uint8             `json:"byte,omitempty"`
	Port     uint16            `json:"port,omitempty"`
	Big      uint64            `json:"big,omitempty"`
	Ratio    float64           `json:"ratio"`
	Maybe    *string           `json:"maybe"`
	Perhaps  *int              `json:"perhaps,omitempty"`
	Tags     []string          `json:"tags" enum:"red,green"`
	Pair     [2]float32        `json:"pair"`
	Mode     textKind          `json:"mode" enum:"head, tail"`
	Level    *int              `json:"level,omitempty" enum:"1,2,3"`
	Env      map[string]string `json:"env,omitempty"`
	Free     map[string]any    `json:"free,omitempty"`
	Any      any               `json:"any"`
	Raw      json.RawMessage   `json:"raw,omitempty"`
	When     time.Time         `json:"when"`
	Wait     time.Duration     `json:"wait,omitempty"`
	Data     []byte            `json:"data,omitempty"`
	Blob     blob              `json:"blob,omitempty"`
	Addr     netip.Addr        `json:"addr"`
	Huge     *big.Int          `json:"huge,omitempty"`
	Number   json.Number       `json:"number,omitempty"`
	Own      ownJSON           `json:"own"`
	Quoted   int               `json:"quoted,string"`
	Points   []*point          `json:"points,omitempty"`
	Untagged string
	Skipped  string `json:"-"`
	Dash     string `json:"-,"` //nolint:staticcheck // a field named "-" is meant
	private  int    //nolint:unused // it must not show
}

type Late struct {
	Extra string `json:"extra"`
}

const everythingSchema = `{"type":"object","properties":{` +
	`"path":{"type":"string","description":"a path within the workspace"},` +
	`"depth":{"type":"integer"},` +
	`"extra":{"type":"string"},` +
	`"named":{"type":"object","properties":{"path":{"type":"string","description":"a path within the workspace"},"note":{"type":"string"}},"required":["path","note"],"additionalProperties":false},` +
	`"note":{"type":"string","description":"wins over the embedded one"},` +
	`"flag":{"type":"boolean"},` +
	`"count":{"type":"integer"},` +
	`"small":{"type":"integer","minimum":-128,"maximum":127},` +
	`"byte":{"type":"integer","minimum":0,"maximum":255},` +
	`"port":{"type":"integer","minimum":0,"maximum":65535},` +
	`"big":{"type":"integer","minimum":0},` +
	`"ratio":{"type":"number"},` +
	`"maybe":{"type":["string","null"]},` +
	`"perhaps":{"type":"integer"},` +
	`"tags":{"type":"array","items":{"type":"string","enum":["red","green"]}},` +
	`"pair":{"type":"array","items":{"type":"number"},"minItems":2,"maxItems":2},` +
	`"mode":{"type":"string","enum":["head","tail"]},` +
	`"level":{"type":"integer","enum":[1,2,3]},` +
	`"env":{"type":"object","additionalProperties":{"type":"string"}},` +
	`"free":{"type":"object","additionalProperties":true},` +
	`"any":true,` +
	`"raw":true,` +
	`"when":{"type":"string","format":"date-time"},` +
	`"wait":{"type":"integer"},` +
	`"data":{"type":"string","contentEncoding":"base64"},` +
	`"blob":{"type":"string","contentEncoding":"base64"},` +
	`"addr":{"type":"string"},` +
	`"huge":{"type":"integer"},` +
	`"number":{"type":"number"},` +
	`"own":true,` +
	`"quoted":{"type":"string"},` +
	`"points":{"type":"array","items":{"type":["object","null"],"properties":{"X":{"type":"integer"},"Y":{"type":"integer"}},"additionalProperties":false}},` +
	`"Untagged":{"type":"string"},` +
	`"-":{"type":"string"}},` +
	`"required":["path","named","flag","count","ratio","tags","pair","mode","any","when","addr","own","quoted","Untagged","-"],` +
	`"additionalProperties":false}`

// normal sorts the keywords of every object, properties excepted.
func normal(t *testing.T, text []byte) string {
	t.Helper()
	var v any
	if err := json.Unmarshal(text, &v); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetIndent("", " ")
	if err := e.Encode(v); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// contract: W3
func TestForEverything(t *testing.T) {
	t.Parallel()
	got, err := schema.For[everything]()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(normal(t, []byte(everythingSchema)), normal(t, got)); diff != "" {
		t.Error(diff)
	}
	order := func(text string) (names []int) {
		for _, name := range []string{`"path":{`, `"depth":{`, `"named":{`, `"flag":{`, `"when":{`, `"Untagged":{`} {
			names = append(names, strings.Index(text, name))
		}
		return names
	}
	if at := order(string(got)); !slices.IsSorted(at) {
		t.Errorf("the fields lost their order: %v", at)
	}
	for range 20 {
		if again, _ := schema.For[everything](); !bytes.Equal(got, again) {
			t.Fatal("the bytes differ from call to call")
		}
	}
	s := mustCompile(t, string(got))
	if err := s.ForArguments(); err != nil {
		t.Error(err)
	}
}

func TestForSmallTypes(t *testing.T) {
	t.Parallel()
	check := func(got []byte, err error, want string) {
		t.Helper()
		if err != nil || normal(t, got) != normal(t, []byte(want)) {
			t.Errorf("got %s, %v, want %s", got, err, want)
		}
	}
	empty, err := schema.For[struct{}]()
	check(empty, err, `{"type":"object","properties":{},"additionalProperties":false}`)
	ptr, err := schema.For[*struct{}]()
	check(ptr, err, `{"type":"object","properties":{},"additionalProperties":false}`)
	anything, err := schema.For[any]()
	check(anything, err, `true`)
	open, err := schema.For[map[string]int]()
	check(open, err, `{"type":"object","additionalProperties":{"type":"integer"}}`)
	text, err := schema.For[string]()
	check(text, err, `{"type":"string"}`)
	if err := mustCompile(t, string(text)).ForArguments(); err == nil {
		t.Error("arguments cannot be a string")
	}
}

func TestForResult(t *testing.T) {
	t.Parallel()
	type out struct {
		Files []string         `json:"files"`
		Meta  map[string]int   `json:"meta"`
		Next  *out2            `json:"next"`
		Opt   []string         `json:"opt,omitempty"`
		Err   error            `json:"err,omitempty"`
		Deep  map[string][]int `json:"deep,omitempty"`
		Bytes []byte           `json:"bytes"`
		Times []time.Time      `json:"times,omitzero"`
	}
	text, err := schema.ForResult[out]()
	if err != nil {
		t.Fatal(err)
	}
	s := mustCompile(t, string(text))
	for _, v := range []out{
		{},
		{Files: []string{}, Meta: map[string]int{"a": 1}, Next: &out2{}, Opt: []string{"x"}, Bytes: []byte("b")},
		{Deep: map[string][]int{"a": nil}, Times: []time.Time{{}}},
	} {
		written, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.ValidateOutput(written); err != nil {
			t.Errorf("%s: %v", written, err)
		}
	}
	coded(t, s.ValidateOutput([]byte(`{"files":null,"meta":null,"next":null}`)), frames.CodeValidationOutput)
	list, err := schema.ForResult[[]int]()
	if err != nil || mustCompile(t, string(list)).ValidateOutput([]byte(`null`)) != nil {
		t.Errorf("%s, %v: a nil list is written as null", list, err)
	}
}

type out2 struct {
	A int `json:"a"`
}

type loop struct {
	Kids []*loop `json:"kids"`
}

type loopA struct{ B map[string]loopB }

type loopB struct{ A *loopA }

type twice struct{ A, B point }

type private struct {
	*privateBase
}

type privateBase struct {
	A int
}

func TestForRefusesOddTypes(t *testing.T) {
	t.Parallel()
	refused := func(text []byte, err error, want string) {
		t.Helper()
		e := coded(t, err, frames.CodeValidationInput)
		if text != nil || e.Reason != "bad_schema" || !strings.Contains(e.Message, want) {
			t.Errorf("%s, %v, want %q", text, err, want)
		}
	}
	text, err := schema.For[struct{ F func() }]()
	refused(text, err, "field F: func() has no JSON form")
	text, err = schema.For[struct{ In []struct{ C chan int } }]()
	refused(text, err, "field In: field C: chan int has no JSON form")
	text, err = schema.For[complex128]()
	refused(text, err, "complex128 has no JSON form")
	text, err = schema.For[struct{ E error }]()
	refused(text, err, "field E: error has no JSON form")
	text, err = schema.For[map[int]string]()
	refused(text, err, "a map needs string keys")
	text, err = schema.For[loop]()
	refused(text, err, "field Kids: schema_test.loop contains itself")
	text, err = schema.For[loopA]()
	refused(text, err, "field B: field A: schema_test.loopA contains itself")
	text, err = schema.For[private]()
	refused(text, err, "field A: it is promoted through an embedded pointer to an unexported type")
	text, err = schema.For[struct {
		A int `enum:"1,x"`
	}]()
	refused(text, err, `field A: enum value "x" is no integer`)
	text, err = schema.For[struct {
		A []point `enum:"1"`
	}]()
	refused(text, err, `enum value "1" is no object`)
	text, err = schema.For[struct {
		A int `jsonschema:"minimum=3"`
	}]()
	refused(text, err, "field A: the jsonschema tag is its description")
	if _, err := schema.For[twice](); err != nil {
		t.Errorf("a type used twice is no loop: %v", err)
	}
}

// A schema and encoding/json must agree on which fields a struct has.
func TestForAgreesWithEncodingJSON(t *testing.T) {
	t.Parallel()
	type inner struct {
		A int
		B int `json:"b"`
		C int
	}
	type other struct {
		C int
		D int `json:"d"`
	}
	type third struct {
		D int `json:"D"`
		E int `json:"bad\"name"` //nolint:staticcheck // an invalid name counts as none
	}
	type untagged struct{ G int }
	type tagged struct {
		X int `json:"G"`
	}
	type again struct{ H int }
	type nested struct{ again }
	type all struct {
		inner
		other
		third
		untagged
		tagged
		nested
		again
		A     string `json:"A"`
		Outer inner  `json:"outer"`
	}
	text, err := schema.For[all]()
	if err != nil {
		t.Fatal(err)
	}
	written, err := json.Marshal(all{}) //nolint:musttag // fields without tags are what is tested
	if err != nil {
		t.Fatal(err)
	}
	if err := mustCompile(t, string(text)).Validate(written); err != nil {
		t.Errorf("%s does not fit %s: %v", written, text, err)
	}
	var mine, theirs all
	sample := []byte(`{"A":"a","b":1,"C":2,"d":3,"D":4,"E":5,"G":6,"H":7,"X":8,"outer":{"A":9,"b":10}}`)
	if err := schema.Decode(sample, &mine); err != nil {
		t.Fatal(err)
	}
	//nolint:musttag // likewise
	if err := json.Unmarshal(sample, &theirs); err != nil || !reflect.DeepEqual(mine, theirs) {
		t.Errorf("decoded %+v, encoding/json %+v, %v", mine, theirs, err)
	}
	var have, want map[string]any
	var doc struct {
		Properties map[string]any `json:"properties"`
	}
	if json.Unmarshal(text, &doc) != nil || json.Unmarshal(written, &want) != nil {
		t.Fatal("unreadable")
	}
	have = doc.Properties
	for name := range want {
		if have[name] == nil {
			t.Errorf("%q is missing", name)
		}
	}
	if len(have) != len(want) {
		t.Errorf("properties %v, encoding/json writes %v", have, want)
	}
}
