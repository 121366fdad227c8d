package export

import "encoding/json"

// shape writes one tool around its schema.
func (x *exporting) shape(schema *node) (json.RawMessage, error) {
	switch x.format {
	case OpenAI, OpenAIStrict:
		return object("type", "function", "function", x.function("parameters", schema)).text(), nil
	case OpenAIResponses:
		out := x.function("parameters", schema)
		out.before("type", word("function"))
		if !out.has("strict") { // a missing one means true
			out.set("strict", boolean(false))
		}
		return out.text(), nil
	case Anthropic:
		return x.function("input_schema", schema).text(), nil
	case Vercel:
		out := x.function("inputSchema", schema)
		out.del("name")
		return out.text(), nil
	case MCP:
		return x.mcp(schema)
	}
	return x.gemini(schema), nil
}

// function writes what most formats have in common.
func (x *exporting) function(key string, schema *node) *node {
	out := x.head()
	out.set(key, schema)
	if x.strict != nil {
		out.set("strict", boolean(*x.strict))
	}
	return out
}

func (x *exporting) head() *node {
	out := object("name", x.entry.wire)
	if x.description != "" {
		out.set("description", word(x.description))
	}
	return out
}

func (x *exporting) gemini(schema *node) json.RawMessage {
	out := x.head()
	if x.format == Gemini {
		out.set("parametersJsonSchema", schema)
		return out.text()
	}
	sub, lost, err := parameters(schema)
	switch {
	case err != nil:
		out.set("parametersJsonSchema", schema)
		x.note("sent as JSON Schema: %s", err)
	case sub != nil:
		out.set("parameters", sub)
	}
	for _, key := range lost {
		x.note("%s cannot be said in parameters", key)
	}
	return out.text()
}

func (x *exporting) mcp(schema *node) (json.RawMessage, error) {
	out := object("name", x.entry.wire)
	if x.tool.Title != "" {
		out.set("title", word(x.tool.Title))
	}
	if x.description != "" {
		out.set("description", word(x.description))
	}
	out.set("inputSchema", schema)
	if len(x.tool.OutputSchema) > 0 {
		output, err := read(x.tool.OutputSchema)
		if err != nil {
			return nil, err
		}
		if t := output.get("type").str(); t == "object" {
			out.set("outputSchema", output)
		} else {
			x.note("no outputSchema: MCP takes that of an object only")
		}
	}
	x.hints(out)
	return out.text(), nil
}

// hints writes what the tool says of its effects. MCP assumes the worst of what is
// not said, so nothing is written for a tool that says nothing.
func (x *exporting) hints(out *node) {
	a := x.tool.Annotations
	hints := object()
	for _, hint := range []struct {
		key  string
		said bool
	}{{"readOnlyHint", a.ReadOnly}, {"destructiveHint", a.Destructive}, {"idempotentHint", a.Idempotent}, {"openWorldHint", a.OpenWorld}} {
		if hint.said {
			hints.set(hint.key, boolean(true))
		}
	}
	if a.ReadOnly && !a.Destructive {
		hints.set("destructiveHint", boolean(false))
	}
	if len(hints.keys) > 0 {
		out.set("annotations", hints)
	}
	meta := object()
	if a.Expensive {
		meta.set("weavebus/expensive", boolean(true))
	}
	if a.RequiresConfirmation {
		meta.set("weavebus/requiresConfirmation", boolean(true))
	}
	if len(meta.keys) > 0 {
		out.set("_meta", meta)
	}
}

// mcpRoot gives the root the type that MCP demands and changes nothing else.
func mcpRoot(root *node) *node {
	if root.get("type").str() != "object" {
		root.before("type", word("object"))
	}
	return root
}

// pack writes several tools as one value.
func pack(f Format, entries []entry) json.RawMessage {
	if f == Vercel {
		out := []byte{'{'}
		for i := range entries {
			out = append(appendString(comma(out, i), entries[i].wire), ':')
			out = append(out, entries[i].text...)
		}
		return append(out, '}')
	}
	list := []byte{'['}
	for i := range entries {
		list = append(comma(list, i), entries[i].text...)
	}
	list = append(list, ']')
	if len(entries) > 0 && (f == Gemini || f == GeminiParameters) {
		list = append(append([]byte(`[{"functionDeclarations":`), list...), "}]"...)
	}
	return list
}
