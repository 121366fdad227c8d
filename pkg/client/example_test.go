package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/weavebus/weavebus/pkg/bus"
	"github.com/weavebus/weavebus/pkg/client"
	"github.com/weavebus/weavebus/pkg/frames"
)

// dial connects as weavebus up says when it starts.
func dial(ctx context.Context) *client.Client {
	conn, err := bus.Connect(ctx, bus.Dial{
		URL: os.Getenv("WEAVEBUS_NATS"), SeedFile: os.Getenv("WEAVEBUS_NKEY"), Identity: "me",
	})
	if err != nil {
		log.Fatal(err)
	}
	return client.New(conn)
}

// A call waits for the one result. What the tool says went wrong is in the result,
// what the mesh says is the error.
func ExampleClient_Call() {
	ctx := context.Background()
	c := dial(ctx)
	defer c.Conn().Close()

	res, err := c.Call(ctx, "greet", map[string]string{"name": "Ada"})
	switch {
	case errors.Is(err, &frames.Error{Code: frames.CodeUnavailable}):
		log.Fatal("no mesh answers: start one with weavebus up")
	case err != nil:
		log.Fatal(err)
	case res.Err != nil:
		fmt.Println("the tool failed:", res.Err.Message)
	default:
		fmt.Printf("%s\n", res.Result)
	}
}

// The time that a call may take, and the workspace that it is about, are options
// of the call.
func ExampleWithTimeout() {
	ctx := context.Background()
	c := dial(ctx)
	defer c.Conn().Close()

	res, err := c.Call(ctx, "run_command", map[string]string{"command": "go test ./..."},
		client.WithTimeout(2*time.Minute), client.WithWorkspace("docs"))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s\n", res.Result)
}

// A call with an id of its own can be cancelled from anywhere.
func ExampleClient_Cancel() {
	ctx := context.Background()
	c := dial(ctx)
	defer c.Conn().Close()

	time.AfterFunc(time.Second, func() {
		if err := c.Cancel(ctx, "build-17"); err != nil {
			log.Print(err)
		}
	})
	res, err := c.Call(ctx, "run_command", map[string]string{"command": "sleep 60"}, client.WithID("build-17"))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(res.Err.Code) // CANCELLED
}

// What a running tool puts out comes before its result. Leaving the loop cancels
// the call.
func ExampleClient_CallStream() {
	ctx := context.Background()
	c := dial(ctx)
	defer c.Conn().Close()

	for f, err := range c.CallStream(ctx, "run_command", map[string]string{"command": "make"}) {
		if err != nil {
			log.Fatal(err)
		}
		switch f.Type {
		case frames.TypeText:
			fmt.Print(f.Text())
		case frames.TypeProgress:
			message, _ := f.Content.Lookup("message").Text()
			fmt.Println(message)
		case frames.TypeToolResult:
			res, err := f.Result()
			if err != nil {
				log.Fatal(err)
			}
			fmt.Printf("%s\n", res.Result)
		}
	}
}

// The list holds what the caller may call, and why a tool cannot be called now.
func ExampleClient_Tools() {
	ctx := context.Background()
	c := dial(ctx)
	defer c.Conn().Close()

	tools, err := c.Tools(ctx)
	if err != nil {
		log.Fatal(err)
	}
	for _, t := range tools {
		switch {
		case t.Refused != nil:
			fmt.Println(t.Name, "is refused:", t.Refused.Message)
		case t.Instances == 0:
			fmt.Println(t.Name, "is known, but nobody serves it now")
		default:
			fmt.Println(t.Name, "-", t.Description)
		}
	}
}

// A run lives as long as it is read: nothing of it is kept.
func ExampleClient_Run() {
	ctx := context.Background()
	c := dial(ctx)
	defer c.Conn().Close()

	messages := []map[string]string{{"role": "user", "content": "Describe this folder"}}
	for f, err := range c.Run(ctx, frames.Param("model", "scripted/demo"), frames.Param("messages", messages)) {
		switch {
		case err != nil:
			log.Fatal(err)
		case f.Type == frames.TypeText:
			fmt.Print(f.Text())
		case f.Type == frames.TypeError:
			log.Fatal(f.Err())
		}
	}
}

// A session is kept: who reads it gets each durable frame once, also after the
// mesh was away.
func ExampleClient_Session() {
	ctx := context.Background()
	c := dial(ctx)
	defer c.Conn().Close()

	s, err := c.Session(ctx, "", client.OutageLimit(time.Minute))
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	if _, err := s.Send(ctx,
		frames.Param("model", "scripted/demo"), frames.Param("workspace", "docs"), frames.Param("task", "Describe this folder"),
		frames.Start(), frames.Text("Begin."), frames.End(frames.EndCompleted)); err != nil {
		log.Fatal(err)
	}
	for f, err := range s.Frames(ctx, 0) {
		if err != nil {
			log.Fatal(err) // s.ID and the last f.Entry are all that is needed to go on
		}
		if f.Entry > 0 && f.Type == frames.TypeText {
			fmt.Println(f.Text())
		}
	}
}

// All sessions of a caller can be followed at once.
func ExampleClient_Watch() {
	ctx := context.Background()
	c := dial(ctx)
	defer c.Conn().Close()

	for f, err := range c.Watch(ctx) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(f.Metadata.Text("sessionId"), f.Type)
	}
}
