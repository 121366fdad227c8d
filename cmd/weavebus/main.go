// Command weavebus runs a message-bus mesh for the tools of LLM agents, whole or
// in parts, and talks to one.
package main

import (
	"os"

	"github.com/weavebus/weavebus/internal/cli"
)

func main() { os.Exit(cli.Main(os.Args[1:])) }
