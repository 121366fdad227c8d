package schema

import (
	"encoding/json"
	"errors"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
)

// upgrade rewrites, in doc, the keywords of older drafts that made err: schemas
// that name no draft often use them. It acts only where the metaschema objects,
// so a property that happens to be called like a keyword is left alone. It
// reports whether it changed anything.
func upgrade(doc any, err error) bool {
	invalid, ok := errors.AsType[*jsonschema.SchemaValidationError](err)
	if !ok {
		return false
	}
	failure, ok := errors.AsType[*jsonschema.ValidationError](invalid.Err)
	if !ok {
		return false
	}
	changed := false
	for _, f := range (describer{value: doc}).leaves(failure) {
		if _, ok := f.kind.(*kind.Type); !ok || len(f.at) == 0 {
			continue
		}
		last := len(f.at) - 1
		parent, _ := valueAt(doc, f.at[:last])
		if object, ok := parent.(map[string]any); ok && upgradeKeyword(object, f.at[last]) {
			changed = true
		}
	}
	return changed
}

func upgradeKeyword(object map[string]any, keyword string) bool {
	switch keyword {
	case "items":
		return upgradeItems(object)
	case "exclusiveMinimum":
		return upgradeExclusive(object, keyword, "minimum")
	case "exclusiveMaximum":
		return upgradeExclusive(object, keyword, "maximum")
	}
	return false
}

// upgradeItems turns draft-07's tuple into prefixItems.
func upgradeItems(object map[string]any) bool {
	tuple, ok := object["items"].([]any)
	if !ok {
		return false
	}
	delete(object, "items")
	if len(tuple) > 0 {
		object["prefixItems"] = tuple
	}
	if rest, ok := object["additionalItems"]; ok {
		object["items"] = rest
	}
	return true
}

// upgradeExclusive turns draft-04's flag beside a bound into the bound itself.
func upgradeExclusive(object map[string]any, keyword, bound string) bool {
	exclusive, ok := object[keyword].(bool)
	if !ok {
		return false
	}
	delete(object, keyword)
	limit, ok := object[bound].(json.Number)
	if ok && exclusive {
		object[keyword] = limit
		delete(object, bound)
	}
	return true
}
