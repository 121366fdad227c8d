package tool_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/weavebus/weavebus/pkg/bus"
	"github.com/weavebus/weavebus/pkg/frames"
	"github.com/weavebus/weavebus/pkg/tool"
)

type wordsIn struct {
	Text string `json:"text" jsonschema:"text to count the words of"`
}

type wordsOut struct {
	Words int `json:"words"`
}

// A tool is a Go function; the schemas of arguments and result come from its types.
func ExampleAdd() {
	count := func(_ context.Context, in wordsIn) (wordsOut, error) {
		return wordsOut{Words: len(strings.Fields(in.Text))}, nil
	}
	tools := tool.NewSet("words")
	err := tool.Add(tools, "count_words", count,
		tool.Description("Counts the words of a text."), tool.ReplaySafe(), tool.Timeout(time.Second))
	if err != nil {
		log.Fatal(err)
	}
}

// A raw tool has a schema of its own and decides on all of the result.
func ExampleSet_AddRaw() {
	tools := tool.NewSet("words")
	err := tools.AddRaw(frames.Declaration{
		Name:        "shout",
		Description: "Gives a text in capital letters.",
		Schema:      []byte(`{"type":"object","properties":{"text":{"type":"string"}},"required":["text"]}`),
	}, func(_ context.Context, c *tool.Call) (*frames.ToolResult, error) {
		in, err := tool.Decode[wordsIn](c)
		if err != nil {
			return nil, err
		}
		return tool.Text(strings.ToUpper(in.Text)), nil
	})
	if err != nil {
		log.Fatal(err)
	}
}

// Serve puts the tools on the bus until its context ends, and then waits for the
// calls that run.
func ExampleServe() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	conn, err := bus.Connect(ctx, bus.Dial{
		URL: os.Getenv("WEAVEBUS_NATS"), SeedFile: os.Getenv("WEAVEBUS_NKEY"), Identity: "local",
	})
	if err != nil {
		log.Print(err)
		return
	}
	defer conn.Close()
	tools := tool.NewSet("words") // and tools added to it
	if err := tool.Serve(ctx, conn, tools, tool.OnReady(func() { log.Print("serving") })); err != nil {
		log.Print(err)
	}
}

// Output and progress of a running call are seen while it runs. Its context ends
// with the call: by its time-out, or because it was cancelled.
func ExampleOutput() {
	build := func(ctx context.Context, _ struct{}) (string, error) {
		for i, step := range []string{"compile", "link"} {
			tool.Output(ctx, "stdout", step+" …\n")
			tool.Progress(ctx, float64(i+1), 2, step)
			if ctx.Err() != nil {
				return "", ctx.Err()
			}
		}
		return "built", nil
	}
	if err := tool.Add(tool.NewSet("builds"), "build", build); err != nil {
		log.Fatal(err)
	}
}

// Fail says what went wrong in words for the model, with a stable reason for
// programs.
func ExampleFail() {
	find := func(_ context.Context, in wordsIn) (string, error) {
		if in.Text == "" {
			return "", tool.Fail("no_text", "there is no text to look at: give one")
		}
		return in.Text, nil
	}
	if err := tool.Add(tool.NewSet("words"), "find", find); err != nil {
		log.Fatal(err)
	}
}

func ExampleSchemaFor() {
	schema, err := tool.SchemaFor[wordsIn]()
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s\n", schema)
	// Output:
	// {"type":"object","properties":{"text":{"type":"string","description":"text to count the words of"}},"required":["text"],"additionalProperties":false}
}
