package provider

import (
	"math"
	"strconv"
	"strings"

	"github.com/weavebus/weavebus/pkg/frames"
)

// Usage counts tokens and money; what a provider does not say is 0.
type Usage struct {
	// InputTokens includes CachedTokens.
	InputTokens int64 `json:"inputTokens"`
	// OutputTokens includes ReasoningTokens.
	OutputTokens    int64 `json:"outputTokens"`
	TotalTokens     int64 `json:"totalTokens"`
	CachedTokens    int64 `json:"cachedTokens,omitempty"`
	ReasoningTokens int64 `json:"reasoningTokens,omitempty"`
	// CostMicros is the price in millionths of a US dollar.
	CostMicros int64 `json:"costMicros,omitempty"`
}

// Add gives the sum of u and other.
func (u Usage) Add(other Usage) Usage {
	return Usage{
		InputTokens:     u.InputTokens + other.InputTokens,
		OutputTokens:    u.OutputTokens + other.OutputTokens,
		TotalTokens:     u.TotalTokens + other.TotalTokens,
		CachedTokens:    u.CachedTokens + other.CachedTokens,
		ReasoningTokens: u.ReasoningTokens + other.ReasoningTokens,
		CostMicros:      u.CostMicros + other.CostMicros,
	}
}

// mostUsed bounds each count that is read, so that sums do not overflow.
const mostUsed = 1 << 40

// ReadUsage reads a usage from a frame's content. What stands there otherwise
// counts nothing; no count is negative or over 2^40.
func ReadUsage(c frames.Raw) Usage {
	n := func(key string) int64 { v, _ := c.Lookup(key).Int64(); return min(max(v, 0), mostUsed) }
	return Usage{
		InputTokens: n("inputTokens"), OutputTokens: n("outputTokens"), TotalTokens: n("totalTokens"),
		CachedTokens: n("cachedTokens"), ReasoningTokens: n("reasoningTokens"), CostMicros: n("costMicros"),
	}
}

// Price is what a model costs, in US dollars for a million tokens.
type Price struct{ Input, Output, Cached float64 }

// ParsePrice reads INPUT/OUTPUT or INPUT/OUTPUT/CACHED. Without CACHED, cached
// tokens cost what other input does.
func ParsePrice(text string) (Price, error) {
	parts := strings.Split(text, "/")
	var n [3]float64
	ok := len(parts) == 2 || len(parts) == 3
	for i := 0; ok && i < len(parts); i++ {
		v, err := strconv.ParseFloat(parts[i], 64)
		n[i], ok = v, err == nil && v >= 0 && v <= 1e6
	}
	if !ok {
		return Price{}, frames.NewError(frames.CodeValidationInput,
			"price %.40q: want INPUT/OUTPUT or INPUT/OUTPUT/CACHED, US dollars for a million tokens", text)
	}
	if len(parts) == 2 {
		n[2] = n[0]
	}
	return Price{Input: n[0], Output: n[1], Cached: n[2]}, nil
}

// Cost gives what the tokens of u cost, in millionths of a US dollar.
func (p Price) Cost(u Usage) int64 {
	cached := min(u.CachedTokens, u.InputTokens)
	cost := float64(u.InputTokens-cached)*p.Input + float64(cached)*p.Cached + float64(u.OutputTokens)*p.Output
	return int64(math.Round(min(cost, mostUsed)))
}
