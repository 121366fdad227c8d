package openai

import (
	"crypto/sha256"
	"strings"
)

// maxCallID is the longest call id that OpenAI takes.
const maxCallID = 40

// shortCallID is the length that Mistral's templates demand.
const shortCallID = 9

// wireID gives the id that a call goes out under. It depends on the id alone,
// so that calls and results, and all requests of a conversation, agree.
func (c *Config) wireID(id string) string {
	switch {
	case c.ShortCallIDs && (len(id) != shortCallID || !alphanumeric(id)):
		return digest(id, shortCallID)
	case len(id) > maxCallID:
		return "call_" + digest(id, 24)
	}
	return id
}

func alphanumeric(s string) bool {
	return strings.Trim(s, letters) == ""
}

const letters = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

// digest gives size letters and digits that stand for s; size is at most 32.
func digest(s string, size int) string {
	sum := sha256.Sum256([]byte(s))
	out := make([]byte, size)
	for i := range out {
		out[i] = letters[int(sum[i])%len(letters)]
	}
	return string(out)
}
