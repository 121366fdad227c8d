package cli

import (
	"os"

	_ "example.test/broken/services/router"
)

func exit() { os.Exit(len(os.Getenv("ALLOWED"))) }
