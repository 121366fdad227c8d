package frames

import "strings"

// hint tells where in a frame a value stands: a few fields are written
// otherwise in JSON than in msgpack.
type hint uint8

const (
	hintNone     hint = iota
	hintFrame         // a frame
	hintHolder        // a map whose payloads are text in msgpack, raw in JSON
	hintContent       // a holder: a frame's content
	hintMessage       // a holder: a message of a conversation
	hintMessages      // a list of them
	hintHolders       // a list of holders
	hintParts         // a list of parts
	hintPart          // one part: its data is bin in msgpack, base64 in JSON
	hintData          // a part's data
	hintTree          // a payload that is a tree: its bin is text
)

// child gives the hint of a key's value. param is the key of a PARAM, whose
// value is known by it.
func (h hint) child(key, param string) hint {
	switch h {
	case hintFrame:
		return frameChild(key, param)
	case hintContent:
		return contentChild(key)
	case hintHolder:
		return payloadChild(key)
	case hintMessage:
		return messageChild(key)
	case hintPart:
		if key == "data" {
			return hintData
		}
	case hintTree:
		return hintTree
	}
	return hintNone
}

func frameChild(key, param string) hint {
	switch key {
	case "content", "data":
		return hintContent
	case "value":
		return paramHint(param)
	}
	return hintNone
}

func paramHint(param string) hint {
	switch param {
	case "messages":
		return hintMessages
	case "tools":
		return hintHolders
	case "tool", "register-tool":
		return hintHolder
	}
	return hintNone
}

func contentChild(key string) hint {
	switch key {
	case "parts":
		return hintParts
	case "approval", "decision":
		return hintHolder
	case "toolCalls":
		return hintHolders
	case "messages", "history":
		return hintMessages
	}
	return payloadChild(key)
}

func messageChild(key string) hint {
	switch key {
	case "content":
		return hintParts
	case "toolCalls":
		return hintHolders
	}
	return hintNone
}

func payloadChild(key string) hint {
	if isPayload(key) {
		return hintTree
	}
	return hintNone
}

// element gives the hint of a list's elements.
func (h hint) element() hint {
	switch h {
	case hintMessages:
		return hintMessage
	case hintHolders:
		return hintHolder
	case hintParts:
		return hintPart
	case hintTree:
		return hintTree
	}
	return hintNone
}

func (h hint) holdsPayloads() bool { return h == hintHolder || h == hintContent }

// isPayload reports whether a key holds raw JSON in a JSON frame; in msgpack
// its text stands under the key with "Json" appended.
func isPayload(key string) bool {
	switch key {
	case "arguments", "result", "schema", "outputSchema":
		return true
	}
	return false
}

// payloadOf gives the payload whose text the key holds.
func payloadOf(key string) (string, bool) {
	name, ok := strings.CutSuffix(key, "Json")
	return name, ok && isPayload(name)
}
