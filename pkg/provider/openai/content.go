package openai

import "encoding/json"

// partKind says which parts of a content are wanted.
type partKind int

const (
	partText         partKind = iota // strings and text parts
	partThinking                     // strings and parts of any type
	partThinkingOnly                 // parts that hold reasoning
)

type contentPart struct {
	Text     json.RawMessage `json:"text"`
	Thinking json.RawMessage `json:"thinking"`
	Refusal  json.RawMessage `json:"refusal"`
}

// contentText gives the bytes of a content: a string, a part, or a list of
// them. Parts of reasoning stand between those of text with some servers.
func contentText(raw json.RawMessage, want partKind) []byte {
	const most = 6 // a list of parts whose reasoning is a list of parts
	return content(raw, want, most)
}

func content(raw json.RawMessage, want partKind, levels int) []byte {
	raw = trim(raw)
	if len(raw) == 0 || levels == 0 {
		return nil
	}
	switch raw[0] {
	case '"':
		if want == partThinkingOnly {
			return nil
		}
		return unquote(raw)
	case '{':
		return partContent(raw, want, levels-1)
	case '[':
		return listContent(raw, want, levels-1)
	}
	return nil
}

func listContent(raw json.RawMessage, want partKind, levels int) []byte {
	var list []json.RawMessage
	if json.Unmarshal(raw, &list) != nil {
		return nil
	}
	var out []byte
	for _, item := range list {
		out = append(out, content(item, want, levels)...)
	}
	return out
}

func partContent(raw json.RawMessage, want partKind, levels int) []byte {
	var p contentPart
	if json.Unmarshal(raw, &p) != nil {
		return nil
	}
	thinking := content(p.Thinking, partThinking, levels)
	switch want {
	case partThinkingOnly:
		return thinking
	case partThinking:
		return append(thinking, content(p.Text, partThinking, levels)...)
	}
	return append(content(p.Text, partText, levels), content(p.Refusal, partText, levels)...)
}
