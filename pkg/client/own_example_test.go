package client_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/weavebus/weavebus/pkg/bus"
	"github.com/weavebus/weavebus/pkg/client"
	"github.com/weavebus/weavebus/pkg/frames"
	"github.com/weavebus/weavebus/pkg/tool"
)

// A session whose model may ask the person in front of this program.
func ExampleSession_ServeTools() { //nolint:testableexamples // it wants a mesh and a person
	ctx := context.Background()
	conn, err := bus.Connect(ctx, bus.Dial{URL: "nats://127.0.0.1:4222", Identity: "me", SeedFile: "me.nk"})
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	s, err := client.New(conn).Session(ctx, "")
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()

	type question struct {
		Text string `json:"text" jsonschema:"what to ask"`
	}
	ask := func(_ context.Context, q question) (answer string, err error) {
		fmt.Println(q.Text)
		_, err = fmt.Scanln(&answer)
		return answer, err
	}
	tools := tool.NewSet("desk")
	if err := tool.Add(tools, "ask", ask, tool.Description("Asks the user."), tool.Timeout(time.Hour)); err != nil {
		log.Fatal(err)
	}
	if err := s.ServeTools(ctx, tools); err != nil {
		log.Fatal(err)
	}
	_, err = s.Send(ctx, frames.Param("model", "scripted/demo"), frames.Param("workspace", "demo"), frames.Param("task", "Help."),
		frames.Start(), frames.Text("What is in this folder?"), frames.End(""))
	if err != nil {
		log.Fatal(err)
	}
	for f, err := range s.Frames(ctx, 0) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(f.Type, f.Text())
	}
}
