package schema

import (
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/weavebus/weavebus/internal/jsontext"
)

// visit calls seen for every member of every object in doc, with the place of
// the object; keys in order.
func visit(doc any, at []string, seen func(at []string, key string, value any)) {
	switch doc := doc.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(doc)) {
			seen(at, key, doc[key])
			visit(doc[key], append(slices.Clip(at), key), seen)
		}
	case []any:
		for i, item := range doc {
			visit(item, append(slices.Clip(at), strconv.Itoa(i)), seen)
		}
	}
}

// valueAt gives the value at a place of a decoded document.
func valueAt(doc any, at []string) (any, bool) {
	for _, token := range at {
		switch parent := doc.(type) {
		case map[string]any:
			child, ok := parent[token]
			if !ok {
				return nil, false
			}
			doc = child
		case []any:
			i, err := strconv.Atoi(token)
			if err != nil || i < 0 || i >= len(parent) {
				return nil, false
			}
			doc = parent[i]
		default:
			return nil, false
		}
	}
	return doc, true
}

// fragment gives the place as the fragment of a URL.
func fragment(at []string) string {
	return (&url.URL{Fragment: jsontext.Pointer(at...)}).EscapedFragment()
}

// pointerIn gives the JSON Pointer that a location of the compiler ends in.
func pointerIn(location string) string {
	_, frag, _ := strings.Cut(location, "#")
	pointer, err := url.PathUnescape(frag)
	if err != nil {
		return frag
	}
	return pointer
}
