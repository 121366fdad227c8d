package provider_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weavebus/weavebus/pkg/frames"
	"github.com/weavebus/weavebus/pkg/provider"
)

// contract: E10
func TestUsageIsReadAndSummed(t *testing.T) {
	t.Parallel()
	read := provider.ReadUsage(frames.Value(map[string]any{
		"inputTokens": 10.0, "outputTokens": "5", "totalTokens": -3, "cachedTokens": int64(1) << 50, "costMicros": 7, "other": 1,
	}))
	if diff := cmp.Diff(provider.Usage{InputTokens: 10, CachedTokens: 1 << 40, CostMicros: 7}, read); diff != "" {
		t.Errorf("read (-want +got):\n%s", diff)
	}
	one := provider.Usage{InputTokens: 1, OutputTokens: 2, TotalTokens: 3, CachedTokens: 4, ReasoningTokens: 5, CostMicros: 6}
	two := provider.Usage{InputTokens: 2, OutputTokens: 4, TotalTokens: 6, CachedTokens: 8, ReasoningTokens: 10, CostMicros: 12}
	if got := one.Add(one); got != two {
		t.Errorf("sum %+v", got)
	}
	if got := provider.ReadUsage(frames.Value(two)); got != two {
		t.Errorf("there and back: %+v", got)
	}
}

func TestPrices(t *testing.T) {
	t.Parallel()
	used := provider.Usage{InputTokens: 1000, CachedTokens: 400, OutputTokens: 100}
	for text, want := range map[string]int64{
		"0.25/2": 450, "0.25/2/0.025": 360, "0/0": 0, "3/15/0.3": 3420, "1000000/0": 1_000_000_000,
	} {
		p, err := provider.ParsePrice(text)
		if err != nil || p.Cost(used) != want {
			t.Errorf("%s: cost %d, error %v, want %d", text, p.Cost(used), err, want)
		}
	}
	for _, text := range []string{"", "1", "1/2/3/4", "-1/2", "NaN/1", "1/Inf", "a/b", "1e9/1"} {
		if _, err := provider.ParsePrice(text); frames.CodeOf(err) != frames.CodeValidationInput {
			t.Errorf("%q: %v", text, err)
		}
	}
	if got := (provider.Price{Input: 1, Cached: 1}).Cost(provider.Usage{InputTokens: 1, CachedTokens: 5}); got != 1 {
		t.Errorf("more cached than there was: %d", got)
	}
}
