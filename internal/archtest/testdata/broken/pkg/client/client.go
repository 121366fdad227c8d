package client

import (
	_ "github.com/alecthomas/kong"

	_ "example.test/broken/internal/upward"
)
