package argstream

import (
	"encoding/json"

	"github.com/weavebus/weavebus/pkg/frames"
)

// MaxBytes is how long an argument text may be: the inline limit of the protocol.
const MaxBytes = 4 << 20

// Joiner joins the pieces of one call's argument text. The zero value takes
// [MaxBytes]; it is not safe for concurrent use.
type Joiner struct {
	// Limit is the most bytes that Add takes in all; 0 means MaxBytes.
	Limit int

	text []byte
}

// Add appends a piece. Once the limit is passed it is TOO_LARGE, and the piece
// is not kept.
func (j *Joiner) Add(piece []byte) error {
	limit := j.Limit
	if limit <= 0 {
		limit = MaxBytes
	}
	if len(piece) > limit-len(j.text) {
		return tooLarge(limit)
	}
	j.text = append(j.text, piece...)
	return nil
}

// Len gives the bytes joined so far.
func (j *Joiner) Len() int { return len(j.text) }

// Text gives what was joined so far, as it came.
func (j *Joiner) Text() string { return string(j.text) }

// Parse reads what was joined; see [Parse].
func (j *Joiner) Parse() (json.RawMessage, error) { return Parse(j.text) }

func tooLarge(limit int) *frames.Error {
	e := frames.NewError(frames.CodeTooLarge, "arguments are over the limit of %d bytes", limit)
	return e.WithReason(ReasonTooLarge)
}
