// Streaming-tool serves a tool that tells how far it is while it runs, on the mesh at
// WEAVEBUS_NATS, by the nkey seed file WEAVEBUS_NKEY.
package main

import (
	"cmp"
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/weavebus/weavebus/pkg/bus"
	"github.com/weavebus/weavebus/pkg/tool"
)

type countdown struct {
	From int `json:"from" jsonschema:"where to begin"`
}

// launch counts down, a step each 200 ms: watchers see the text and the progress as
// they come, the caller gets the result at the end. A CANCEL ends ctx.
func launch(ctx context.Context, c countdown) (string, error) {
	for n := c.From; n > 0; n-- {
		tool.Output(ctx, "stdout", fmt.Sprintf("%d …\n", n))
		tool.Progress(ctx, float64(c.From-n), float64(c.From), "counting down")
		select {
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
	}
	return "Lift-off!", nil
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	identity := cmp.Or(os.Getenv("WEAVEBUS_IDENTITY"), "local")
	conn, err := bus.Connect(ctx, bus.Dial{URL: os.Getenv("WEAVEBUS_NATS"), SeedFile: os.Getenv("WEAVEBUS_NKEY"), Identity: identity})
	check(err)
	tools := tool.NewSet("launch-pad")
	check(tool.Add(tools, "launch", launch, tool.Description("Counts down and launches."), tool.Timeout(time.Minute)))
	check(tool.Serve(ctx, conn, tools))
	conn.Close()
	stop()
}
