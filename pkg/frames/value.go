package frames

import (
	"encoding/json"
	"slices"
)

// Value writes a Go value as msgpack. Strings, numbers, bools, []byte (bin),
// []string, []any and map[string]any (keys sorted) are written directly, a Raw
// is taken as it is, a json.RawMessage is read as JSON, and any other type goes
// through encoding/json. What cannot be written, or is over the limits of
// [FromJSON], becomes nil.
func Value(v any) Raw {
	return appendValue(nil, v)
}

func appendValue(b []byte, v any) []byte {
	switch v := v.(type) {
	case nil:
		return appendNil(b)
	case Raw:
		return appendRaw(b, v)
	case string:
		return appendString(b, v)
	case bool:
		return appendBool(b, v)
	case int:
		return appendInt(b, int64(v))
	case int64:
		return appendInt(b, v)
	case uint64:
		return appendUint(b, v)
	case float64:
		return appendFloat(b, v)
	case float32:
		if !isFinite(float64(v)) { // encoding/json has no text for it
			return appendFloat(b, float64(v))
		}
	case []byte:
		return appendBin(b, v)
	}
	return appendContainer(b, v)
}

func appendContainer(b []byte, v any) []byte {
	switch v := v.(type) {
	case Fields:
		return v.append(b)
	case []any:
		return appendList(b, v, appendValue)
	case []string:
		return appendList(b, v, appendString)
	case []Raw:
		return appendList(b, v, appendRaw)
	case map[string]any:
		return appendMap(b, v)
	case json.RawMessage:
		return appendJSON(b, v)
	}
	text, err := json.Marshal(v)
	if err != nil {
		return appendNil(b)
	}
	return appendJSON(b, text)
}

func appendList[T any](b []byte, items []T, write func([]byte, T) []byte) []byte {
	b = appendArrayHeader(b, len(items))
	for _, item := range items {
		b = write(b, item)
	}
	return b
}

func appendMap(b []byte, m map[string]any) []byte {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	b = appendMapHeader(b, len(keys))
	for _, k := range keys {
		b = appendValue(appendString(b, k), m[k])
	}
	return b
}

func appendJSON(b []byte, text json.RawMessage) []byte {
	raw, err := FromJSON(text)
	if err != nil {
		return appendNil(b)
	}
	return append(b, raw...)
}
