// Chat-client is a chat over a session: each line of standard input is a turn. It gives
// the model a tool that runs in this program. The mesh is at WEAVEBUS_NATS, the nkey
// seed file of the caller me is WEAVEBUS_NKEY, the model WEAVEBUS_MODEL (scripted/demo),
// the workspace WEAVEBUS_WORKSPACE (the folder it is started in, as the mesh serves it).
package main

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/weavebus/weavebus/pkg/bus"
	"github.com/weavebus/weavebus/pkg/client"
	"github.com/weavebus/weavebus/pkg/frames"
	"github.com/weavebus/weavebus/pkg/tool"
)

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// clock is the tool: the model may call it, and it runs here.
func clock(context.Context, struct{}) (string, error) { return time.Now().Format(time.RFC1123), nil }

func main() {
	ctx := context.Background()
	conn, err := bus.Connect(ctx, bus.Dial{URL: os.Getenv("WEAVEBUS_NATS"), SeedFile: os.Getenv("WEAVEBUS_NKEY"), Identity: "me"})
	check(err)
	defer conn.Close()
	s, err := client.New(conn).Session(ctx, "")
	check(err)
	tools := tool.NewSet("chat")
	check(tool.Add(tools, "clock", clock, tool.Description("Tells the time at the user's place.")))
	check(s.ServeTools(ctx, tools))

	here, err := os.Getwd()
	check(err)
	model, dir := cmp.Or(os.Getenv("WEAVEBUS_MODEL"), "scripted/demo"), cmp.Or(os.Getenv("WEAVEBUS_WORKSPACE"), here)
	_, err = s.Send(ctx, frames.Param("model", model), frames.Param("workspace", dir), frames.Param("task", "Help the user."), frames.Start())
	check(err)
	lines, shown := bufio.NewScanner(os.Stdin), ""
	for f, err := range s.Frames(ctx, 0) {
		check(err)
		switch f.Type {
		case frames.TypeText: // live as the model speaks; the durable one only if that was missed
			if f.Entry == 0 && f.ToolCallID == "" || f.Metadata.Text("role") == "assistant" && f.StreamID != shown {
				fmt.Print(f.Text())
				shown = f.StreamID
			}
		case frames.TypeToolCall:
			fmt.Printf("\n[%s]\n", f.Name)
		case frames.TypeError:
			fmt.Println("\n" + f.Err().Error())
		case frames.TypeMeta:
			if status, _ := f.Content.Lookup("state").Lookup("status").Text(); status == "idle" {
				fmt.Print("\n> ")
				next := frames.End(frames.EndCompleted)
				if lines.Scan() {
					next = frames.Text(lines.Text())
				}
				_, err := s.Send(ctx, next)
				check(err)
			}
		}
	}
}
