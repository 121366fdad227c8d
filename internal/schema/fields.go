package schema

import (
	"cmp"
	"reflect"
	"slices"
	"strings"
	"unicode"
)

// field is a member of a struct's JSON form.
type field struct {
	name    string
	index   []int
	typ     reflect.Type
	tag     reflect.StructTag
	goName  string
	tagged  bool
	omits   bool // omitempty or omitzero
	byPtr   bool // promoted through an embedded pointer
	quoted  bool // option string: a scalar inside a string
	private bool // promoted through an embedded pointer that cannot be set
}

// fieldsOf gives the members of struct type t as encoding/json chooses them:
// those of embedded structs count as the struct's own, the least nested one of
// a name wins, then the one with a tag, else none. [For] and [Decode] share it,
// so what a schema promises is what is filled.
func fieldsOf(t reflect.Type) []field {
	var all []field
	level := []field{{typ: t}}
	seen := map[reflect.Type]bool{}
	for len(level) > 0 {
		var next []field
		for _, parent := range level {
			if seen[parent.typ] {
				continue
			}
			own, embedded := direct(parent)
			all, next = append(all, own...), append(next, embedded...)
		}
		for _, parent := range level {
			seen[parent.typ] = true
		}
		level = next
	}
	return dominant(all)
}

// direct gives the members that parent declares, and the embedded structs whose
// members are promoted.
func direct(parent field) (own, embedded []field) {
	for i := range parent.typ.NumField() {
		sf := parent.typ.Field(i)
		tag := sf.Tag.Get("json")
		base := sf.Type
		if base.Kind() == reflect.Pointer && base.Name() == "" {
			base = base.Elem()
		}
		promotes := sf.Anonymous && base.Kind() == reflect.Struct
		if tag == "-" || !sf.IsExported() && !promotes {
			continue
		}
		f := member(sf, tag)
		f.index = append(slices.Clone(parent.index), i)
		f.byPtr, f.private = parent.byPtr, parent.private
		switch {
		case promotes && !f.tagged:
			f.typ = base
			f.byPtr = f.byPtr || base != sf.Type
			f.private = f.private || base != sf.Type && !sf.IsExported()
			embedded = append(embedded, f)
		case sf.IsExported():
			own = append(own, f)
		}
	}
	return own, embedded
}

func member(sf reflect.StructField, tag string) field {
	name, options, _ := strings.Cut(tag, ",")
	f := field{name: sf.Name, typ: sf.Type, tag: sf.Tag, goName: sf.Name}
	if validName(name) {
		f.name, f.tagged = name, true
	}
	for option := range strings.SplitSeq(options, ",") {
		switch option {
		case "omitempty", "omitzero":
			f.omits = true
		case "string":
			f.quoted = scalar(sf.Type)
		}
	}
	return f
}

func scalar(t reflect.Type) bool {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch k := t.Kind(); k {
	case reflect.Bool, reflect.String, reflect.Float32, reflect.Float64:
		return true
	default:
		return k >= reflect.Int && k <= reflect.Uintptr
	}
}

// validName is encoding/json's rule for names in tags.
func validName(name string) bool {
	for _, r := range name {
		if !strings.ContainsRune("!#$%&()*+-./:;<=>?@[]^_{|}~ ", r) && !unicode.IsLetter(r) && !unicode.IsDigit(r) {
			return false
		}
	}
	return name != ""
}

// dominant resolves names that occur more than once and puts the members in
// their order of declaration.
func dominant(all []field) []field {
	byName := map[string][]field{}
	for _, f := range all {
		byName[f.name] = append(byName[f.name], f)
	}
	var out []field
	for _, same := range byName {
		slices.SortStableFunc(same, precedence)
		if len(same) == 1 || precedence(same[0], same[1]) != 0 {
			out = append(out, same[0])
		}
	}
	slices.SortFunc(out, func(a, b field) int { return slices.Compare(a.index, b.index) })
	return out
}

func precedence(a, b field) int {
	if d := cmp.Compare(len(a.index), len(b.index)); d != 0 || a.tagged == b.tagged {
		return d
	}
	if a.tagged {
		return -1
	}
	return 1
}
