package loop

import (
	env "os"

	_ "example.test/broken/internal/cli"
	_ "example.test/broken/services/router"
)

func lookup() string { return env.Getenv("SECRET") }
