package schema_test

import (
	"errors"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/weavebus/weavebus/internal/schema"
	"github.com/weavebus/weavebus/pkg/frames"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func mustCompile(t testing.TB, text string) *schema.Schema {
	t.Helper()
	s, err := schema.Compile([]byte(text))
	if err != nil {
		t.Fatalf("Compile(%.200s): %v", text, err)
	}
	return s
}

// coded proves that err is an error of the mesh with this code.
func coded(t testing.TB, err error, code frames.Code) *frames.Error {
	t.Helper()
	var e *frames.Error
	if !errors.As(err, &e) || e.Code != code {
		t.Fatalf("error %v, want code %s", err, code)
	}
	if e.Message == "" || len(e.Message) > 8<<10 || len(e.LLMMessage) > 8<<10 {
		t.Errorf("message of %d, text for the model of %d bytes", len(e.Message), len(e.LLMMessage))
	}
	return e
}

// line is the first issue of err in the form `path: message (expected, got)`.
func line(t testing.TB, err error) string {
	t.Helper()
	e := coded(t, err, frames.CodeValidationInput)
	_, rest, _ := strings.Cut(e.Message, ": ")
	return rest
}

// list joins n parts by commas.
func list(n int, part func(i int) string) string {
	parts := make([]string, n)
	for i := range parts {
		parts[i] = part(i)
	}
	return strings.Join(parts, ",")
}
