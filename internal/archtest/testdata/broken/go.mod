module example.test/broken

go 1.26

require (
	github.com/alecthomas/kong v0.0.0
	github.com/nats-io/nats-server/v2 v2.0.0
	github.com/nats-io/nats.go v1.0.0
	example.test/undecided v0.0.0
)

replace (
	github.com/alecthomas/kong => ./_modules/kong
	github.com/nats-io/nats-server/v2 => ./_modules/server
	github.com/nats-io/nats.go => ./_modules/nats
	example.test/undecided => ./_modules/undecided
)
