package router

import (
	"strings"

	"github.com/weavebus/weavebus/internal/argstream"
	"github.com/weavebus/weavebus/pkg/bus"
	"github.com/weavebus/weavebus/pkg/frames"
	"github.com/weavebus/weavebus/pkg/provider"
)

type sinkKind uint8

const (
	sinkPiece sinkKind = iota + 1
	sinkStop           // META that tells of a turn's stop reason
	sinkClose
	sinkEnd
)

// sinkEvent is what a frame on a sink says.
type sinkEvent struct {
	kind  sinkKind
	frame *frames.Frame
	key   argstream.Key
	text  []byte // of a piece
	cut   string // the stop reason of a turn that was cut off
}

// ends reports whether the event is the last of its message: it is answered.
func (e *sinkEvent) ends() bool { return e.kind == sinkClose || e.kind == sinkEnd }

// readSink reads a message on a sink. It is refused as a whole where one of its
// frames is, so that nothing of it is acted on.
func readSink(q *bus.Request) ([]sinkEvent, error) {
	var out []sinkEvent
	for i := range q.Frames {
		e, err := readSinkFrame(q.Caller(), &q.Frames[i])
		switch {
		case err != nil:
			return nil, err
		case e.kind == 0: // another's, beside what is known here
		case len(out) > 0 && out[len(out)-1].ends():
			return nil, badCall("%s behind what ends the message: close one call in each", e.frame.Type)
		default:
			out = append(out, e)
		}
	}
	if len(out) == 0 {
		return nil, frames.UnknownType(q.Frames[0].Type)
	}
	return out, nil
}

func readSinkFrame(caller string, f *frames.Frame) (sinkEvent, error) {
	e := sinkEvent{frame: f, key: argstream.Key{Owner: caller, Stream: f.StreamID, Call: frames.StreamedCallID(f)}}
	switch f.Type {
	case frames.TypeText:
		e.kind = sinkPiece
	case frames.TypeMeta:
		if e.kind = sinkClose; !frames.ToolComplete(f) {
			e.kind = sinkStop
		}
	case frames.TypeEnd:
		e.kind = sinkEnd
	default:
		return e, nil
	}
	return e, e.read()
}

// read takes what the event carries, and refuses what does not belong on a sink.
func (e *sinkEvent) read() error {
	var stop bool
	e.cut, stop = cutOff(e.frame)
	needsCall := e.kind == sinkPiece || e.kind == sinkClose
	switch {
	case e.kind == sinkPiece && !e.frame.Metadata.Bool("toolArgStream"):
		return badCall("TEXT on a sink carries arguments: set metadata.toolArgStream")
	case e.kind == sinkStop && !stop:
		return badCall("META that a client may not send: on a sink it has metadata.toolComplete, or stopReason")
	case needsCall && e.key.Call == "":
		return badCall("%s on a sink names its call in toolCallId", e.frame.Type)
	case e.key.Call != "" && !frames.ValidName(e.key.Call):
		return badCall("toolCallId: want 1 to 64 letters, digits, _ or -")
	}
	if e.kind == sinkPiece {
		var ok bool
		if e.text, ok = e.frame.Content.Lookup("text").Bytes(); !ok {
			return badCall("TEXT has no text")
		}
	}
	return nil
}

// cutOff gives the stop reason of a turn that the model did not end by itself; ""
// where it did. told says that a reason stands there at all.
func cutOff(f *frames.Frame) (cut string, told bool) {
	word := f.Metadata.Text("stopReason")
	if word == "" {
		word, _ = f.Content.Lookup("stopReason").Text()
	}
	if provider.StopReason(strings.ReplaceAll(word, "_", "-")).Complete() {
		return "", true
	}
	return word, word != ""
}
