package client

import "github.com/weavebus/weavebus/pkg/provider"

// SessionUsage is a session's ledger: what its model requests used together.
type SessionUsage struct {
	provider.Usage
	// Requests counts model requests, Failed those of them that brought no answer,
	// Calls the tool calls.
	Requests int64 `json:"requests"`
	Failed   int64 `json:"failed,omitempty"`
	Calls    int64 `json:"calls"`
	// Tools is what tools say that they used of models themselves.
	Tools provider.Usage `json:"tools,omitzero"`
}
