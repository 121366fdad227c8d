package hook_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/weavebus/weavebus/pkg/frames"
	"github.com/weavebus/weavebus/pkg/hook"
)

// A gate denies, changes the arguments, or answers in place of the tool.
func ExampleHook() {
	policy := hook.Hook{
		Name:  "policy",
		Tools: []string{"run_command"},
		Before: func(_ context.Context, c *hook.Call) (hook.Decision, error) {
			args := map[string]any{}
			if err := c.Decode(&args); err != nil {
				return hook.Decision{}, err // an error denies
			}
			switch command, _ := args["command"].(string); {
			case strings.HasPrefix(command, "rm "):
				return hook.Deny("rm is not allowed here"), nil
			case command == "date":
				return hook.Skip(map[string]any{"stdout": "today\n", "exitCode": 0}), nil
			case strings.HasPrefix(command, "make "):
				args["command"] = "nice " + command
				return hook.Mutate(args), nil
			}
			return hook.Proceed(), nil
		},
	}
	for _, command := range []string{"rm -rf /", "date", "make all", "ls"} {
		args := json.RawMessage(fmt.Sprintf(`{"command":%q}`, command))
		d, err := policy.Before(context.Background(), &hook.Call{Tool: "run_command", Arguments: args})
		fmt.Println(d.Action(), d.Reason(), err)
	}
	// Output:
	// deny rm is not allowed here <nil>
	// skip  <nil>
	// mutate  <nil>
	// proceed  <nil>
}

// A cache answers what it knows, and keeps what comes from the tool.
func ExampleSkip() {
	known := map[string]*frames.ToolResult{}
	cache := hook.Hook{
		Name: "cache",
		Before: func(_ context.Context, c *hook.Call) (hook.Decision, error) {
			if res := known[c.Tool+string(c.Arguments)]; res != nil {
				return hook.Skip(res), nil
			}
			return hook.Proceed(), nil
		},
		After: func(_ context.Context, c *hook.Call, res *frames.ToolResult) (hook.Outcome, error) {
			known[c.Tool+string(c.Arguments)] = res
			return hook.Keep(), nil
		},
	}
	call := &hook.Call{Tool: "search", Arguments: json.RawMessage(`{"q":"bus"}`)}
	first, _ := cache.Before(context.Background(), call)
	_, _ = cache.After(context.Background(), call, &frames.ToolResult{Result: json.RawMessage(`["a bus"]`)})
	second, _ := cache.Before(context.Background(), call)
	fmt.Println(first.Action(), second.Action())
	// Output: proceed skip
}
