module github.com/nats-io/nats-server/v2
