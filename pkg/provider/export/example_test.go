package export_test

import (
	"encoding/json"
	"fmt"

	"github.com/weavebus/weavebus/pkg/provider"
	"github.com/weavebus/weavebus/pkg/provider/export"
)

// Tools go out in the form of a provider; the model's call comes back in the tool's
// own terms.
func ExampleExport() {
	set, err := export.Export(export.OpenAIStrict, []export.Tool{{Tool: provider.Tool{
		Name:        "maps.search",
		Description: "Finds places.",
		Schema:      json.RawMessage(`{"type":"object","properties":{"near":{"type":"string"},"most":{"type":"integer"}},"required":["near"]}`),
	}}})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(string(set.JSON()))
	fmt.Println(set.Own(set.Names().Wire("maps.search"), `{"near":"Ulm","most":null}`))
	// Output:
	// [{"type":"function","function":{"name":"maps_search_x9bd256e51c","description":"Finds places.","parameters":{"type":"object","properties":{"near":{"type":"string"},"most":{"type":["integer","null"]}},"required":["near","most"],"additionalProperties":false},"strict":true}}]
	// maps.search {"near":"Ulm"}
}

func ExampleArguments() {
	schema := json.RawMessage(`{"type":"object","properties":{"path":{"type":"string"},"after":{"type":["string","null"]}}}`)
	fmt.Println(export.Arguments(schema, `{"after":null,"path":null}`))
	// Output: {"after":null}
}

func ExampleNewNames() {
	names, err := export.NewNames(export.Gemini, []string{"read_file", "3d.render"})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(names.Wire("read_file"))
	own, known := names.Own(names.Wire("3d.render"))
	fmt.Println(own, known)
	// Output:
	// read_file
	// 3d.render true
}
