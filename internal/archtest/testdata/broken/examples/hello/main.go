package main

import (
	"os"

	_ "example.test/broken/internal/natsd"
)

func main() { os.Exit(1) }
