package engine

import (
	"context"

	"github.com/weavebus/weavebus/pkg/frames"
	"github.com/weavebus/weavebus/pkg/provider"
)

// Journal keeps what a run did. Each commit is one transition: all of it stands,
// or nothing.
type Journal interface {
	// Commit keeps c before the run acts on it. For an answer it gives the ids of
	// its calls, in their order, each never used before. TOO_LARGE says that
	// nothing was kept and that a smaller commit may be; every other error ends
	// the run as it stands.
	Commit(ctx context.Context, c *Commit) (ids []string, err error)
}

// Commit is one transition of a run, not to be changed once it was made.
type Commit struct {
	// Answer is the model's, nil where the model said nothing.
	Answer *Answer
	// Failed is what a model request used that brought no answer; nil where there
	// was none.
	Failed *provider.Usage
	// Prepared says how calls are run that were committed before they were prepared.
	Prepared []Prepared
	// Results are those of calls of the open round.
	Results []Result
	// Next says that every call of the round has its result and the model is
	// asked again.
	Next bool
	// End is set where the run is over.
	End *End

	stop  *End // nothing new starts from now on
	rerun []plan
}

// Answer is a model's answer.
type Answer struct {
	// Message is the assistant's; its calls have no ID yet.
	Message provider.Message
	// Calls say how each call of Message, in its order, is run.
	Calls []Intent
	Stop  provider.Stop

	plans []plan
	limit *frames.Error // what the calls go beyond
}

// Intent is what was decided about a call before anything acts.
type Intent struct {
	// Identity and Replay are those of the chosen tool; empty where the call is refused.
	Identity, Replay string
	// Limits are the tool's, by which its result is shown to the model.
	Limits frames.OutputLimits
	// Outside says that somebody outside of the mesh runs it; see [Ticket].
	Outside bool
	// Refused is the result of a call that does not run; nil where it does.
	Refused *frames.ToolResult
}

// Prepared is the intent of a call that has its id already.
type Prepared struct {
	CallID string
	Intent
}

// Result is the one result of a call.
type Result struct {
	CallID string
	// Tool is the name as frames carry it.
	Tool   string
	Result *frames.ToolResult
	// Message is what the model sees of it.
	Message provider.Message
	// Recorded says that the journal has it already: see [Runner.Recorded].
	Recorded bool
}

// End says how a run ended.
type End struct {
	// Reason is that of the END frame.
	Reason string
	// Err stands beside it where the run did not end well, or nil.
	Err *frames.Error
}

// endOf gives the end of a run that failed with err.
func endOf(err *frames.Error) End {
	switch err.Code {
	case frames.CodeLimit:
		return End{frames.EndLimit, err}
	case frames.CodeCancelled:
		return End{frames.EndCancelled, nil}
	}
	return End{frames.EndError, err}
}

// Cancelled is the end of a run that somebody stopped.
func Cancelled() End { return End{Reason: frames.EndCancelled} }

func (c *Commit) empty() bool {
	return c.Answer == nil && len(c.Prepared) == 0 && len(c.Results) == 0 && !c.Next && c.End == nil
}

// Stops reports whether the commit is of a stop: a call that has another result
// by now keeps that.
func (c *Commit) Stops() bool { return c.stop != nil }

// Frames gives what a client sees of the commit of a run outside a session; ids
// are those of the answer's calls. Text and thinking went before, as they came.
func (c *Commit) Frames(ids []string) []frames.Frame {
	var out []frames.Frame
	if c.Answer != nil {
		out = c.Answer.frames(ids)
	}
	for _, r := range c.Results {
		out = append(out, frames.Result(r.Result, frames.WithCall(r.CallID, r.Tool)))
	}
	if c.End != nil {
		out = append(out, c.End.frames()...)
	}
	return out
}

func (a *Answer) frames(ids []string) []frames.Frame {
	var out, refused []frames.Frame
	for i, call := range a.Message.Calls {
		at := frames.WithCall(ids[i], call.Name)
		out = append(out, callFrame(call, at))
		if r := a.Calls[i].Refused; r != nil {
			refused = append(refused, frames.Result(r, at))
		}
	}
	usage := frames.Meta(frames.Fields{
		{Key: "usage", Value: frames.Value(a.Stop.Usage)},
		{Key: "stopReason", Value: frames.Value(string(a.Stop.Reason))},
	})
	return append(append(out, usage), refused...)
}

// callFrame shows a call; a text that is no JSON object stands as argumentsText,
// since a JSON frame could not carry it as arguments.
func callFrame(call provider.Call, opts ...frames.Option) frames.Frame {
	if string(provider.ValidArguments(call.Arguments)) == call.Arguments {
		return frames.Call(call.Name, []byte(call.Arguments), opts...)
	}
	f := frames.NewFrame(frames.TypeToolCall, frames.Fields{{Key: "argumentsText", Value: frames.Value(call.Arguments)}}, opts...)
	f.Name = call.Name
	return f
}

func (e *End) frames() []frames.Frame {
	if e.Err == nil {
		return []frames.Frame{frames.End(e.Reason)}
	}
	return []frames.Frame{frames.Fail(e.Err), frames.End(e.Reason)}
}
