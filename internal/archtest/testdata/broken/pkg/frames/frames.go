package frames

import (
	_ "encoding/json"

	_ "github.com/nats-io/nats.go"
)
