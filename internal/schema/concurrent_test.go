package schema_test

import (
	"fmt"
	"strconv"
	"sync"
	"testing"

	"github.com/weavebus/weavebus/internal/schema"
)

func TestCacheFromManyGoroutines(t *testing.T) {
	t.Parallel()
	c := schema.Cache{MaxBytes: 5000}
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 40 {
				s, err := c.Compile(fmt.Appendf(nil, `{"properties":{"n":{"minimum":%d}}}`, i%6))
				if err != nil {
					t.Error(err)
					return
				}
				fits := s.Validate([]byte(`{"n":3}`)) == nil
				if fits != (i%6 <= 3) {
					t.Errorf("goroutine %d: minimum %d: %v", g, i%6, fits)
				}
			}
		})
	}
	wg.Wait()
}

// All validations of a schema share one meter: what each spends must never make
// another one fail.
func TestSharedWorkNeverFailsACall(t *testing.T) {
	t.Parallel()
	s := mustCompile(t, `{"properties":{"l":{"items":{"anyOf":[{"type":"integer"},`+list(30, func(int) string { return `{"type":"string"}` })+`]}}}}`)
	args := []byte(`{"l":[` + list(1000, strconv.Itoa) + `]}`)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 30 {
				if err := s.Validate(args); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}
