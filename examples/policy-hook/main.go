// Policy-hook decides on the commands of a mesh that was started with --hook policy,
// at WEAVEBUS_NATS, by the nkey seed file WEAVEBUS_NKEY.
package main

import (
	"context"
	"log"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/weavebus/weavebus/pkg/bus"
	"github.com/weavebus/weavebus/pkg/hook"
)

// decide is the policy: no rm, the date is always Sunday, and no command takes long.
func decide(_ context.Context, c *hook.Call) (hook.Decision, error) {
	args := map[string]any{}
	if err := c.Decode(&args); err != nil {
		return hook.Decision{}, err // an error denies the call
	}
	command, _ := args["command"].(string)
	switch {
	case c.Tool != "run_command":
		return hook.Proceed(), nil
	case strings.HasPrefix(command, "rm "):
		return hook.Deny("rm is not allowed here"), nil
	case command == "date": // what stands in place of a result fits the tool's output schema
		return hook.Skip(map[string]any{"success": true, "command": command, "exitCode": 0, "durationMs": 0,
			"stdout": "Sunday\n", "stdoutBytes": 7, "stderr": "", "stderrBytes": 0}), nil
	}
	args["timeout_ms"] = 2000
	return hook.Mutate(args), nil
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	conn, err := bus.Connect(ctx, bus.Dial{URL: os.Getenv("WEAVEBUS_NATS"), SeedFile: os.Getenv("WEAVEBUS_NKEY"), Identity: "hook"})
	check(err)
	check(hook.Serve(ctx, conn, hook.Hook{Name: "policy", Before: decide}, hook.OnReady(func() { log.Print("policy is ready") })))
	conn.Close()
	stop()
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
