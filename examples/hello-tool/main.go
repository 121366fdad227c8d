// Hello-tool serves one tool on the mesh at WEAVEBUS_NATS, by the nkey seed file WEAVEBUS_NKEY.
package main

import (
	"cmp"
	"context"
	"log"
	"os"
	"os/signal"
	"syscall"

	"github.com/weavebus/weavebus/pkg/bus"
	"github.com/weavebus/weavebus/pkg/tool"
)

type person struct {
	Name string `json:"name" jsonschema:"whom to greet"`
}

func greet(_ context.Context, p person) (string, error) { return "Hello, " + p.Name + "!", nil }

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
	tools := tool.NewSet("hello")
	check(tool.Add(tools, "greet", greet, tool.Description("Greets a person."), tool.ReplaySafe()))
	check(tool.Serve(ctx, conn, tools, tool.OnReady(func() { log.Print("serving greet; Ctrl-C stops it") })))
	conn.Close()
	stop()
}
