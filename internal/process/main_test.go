package process

import (
	"context"
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if text := os.Getenv(commandForChild); text != "" {
		_, _ = shell(text).Run(context.Background()) // until it is killed
		return
	}
	goleak.VerifyTestMain(m)
}

// commandForChild is a variable: the test binary runs its value as a command.
const commandForChild = "WEAVEBUS_TEST_COMMAND"

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func equal[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}
