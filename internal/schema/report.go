package schema

import (
	"fmt"
	"strings"

	"github.com/weavebus/weavebus/internal/jsontext"
	"github.com/weavebus/weavebus/pkg/frames"
)

// maxLine bounds one issue in the text for a model, in bytes.
const maxLine = 600

// report turns issues into the error of one direction.
type report struct {
	code       frames.Code
	tool       string
	objectOnly bool
	subject    string // "the arguments", "the result"
	misfit     string // what follows the subject when it does not fit
	unreadable string // and when it does not parse
	advice     string
}

var inputReport = report{
	code: frames.CodeValidationInput, objectOnly: true, subject: "arguments",
	misfit:     "do not fit the schema",
	unreadable: "are not the JSON they have to be",
	advice:     "Fix the arguments and call the tool again.",
}

var outputReport = report{
	code: frames.CodeValidationOutput, subject: "result",
	misfit:     "does not fit the output schema, so the tool is at fault, not your call",
	unreadable: "is not the JSON it has to be, so the tool is at fault, not your call",
	advice:     "Other arguments will not mend the tool. It may have done its work; go on without its result.",
}

func (r report) error(issues []frames.Issue, more int) error {
	return r.saying(r.misfit, issues, more)
}

func (r report) saying(what string, issues []frames.Issue, more int) *frames.Error {
	lines := []string{"The " + r.subject + r.ofTool() + " " + what + ":"}
	for _, i := range issues {
		lines = append(lines, "  - "+issueText(i))
	}
	if more > 0 {
		lines = append(lines, "  - and "+count(more, "more problem"))
	}
	e := frames.NewError(r.code, "%s%s: %s", r.subject, r.ofTool(), issueText(issues[0]))
	if rest := len(issues) - 1 + more; rest > 0 {
		e.Message += fmt.Sprintf(" (and %d more)", rest)
	}
	e.Issues, e.LLMMessage = issues, strings.Join(append(lines, r.advice), "\n")
	return e
}

func (r report) ofTool() string {
	if r.tool == "" {
		return ""
	}
	return " of tool " + quote(r.tool)
}

// problem is the error of a text that was not decoded.
func (r report) problem(text []byte, p *jsontext.Problem) error {
	return r.saying(r.unreadable, []frames.Issue{problemIssue(text, p)}, 0).WithReason(p.Kind.String())
}

func problemIssue(text []byte, p *jsontext.Problem) frames.Issue {
	return frames.Issue{
		Path:    p.Path,
		Message: fmt.Sprintf("%s, at byte %d", p.Reason, p.Offset),
		Got:     jsontext.Near(text, p.Offset),
	}
}

func notObject(value any) frames.Issue {
	return frames.Issue{Message: "wrong type", Expected: "object", Got: typed(value)}
}

func tooMuchWork() frames.Issue {
	return frames.Issue{
		Message:  "checking this value takes more work than one call may cost",
		Expected: "fewer or simpler values",
	}
}

// issueText is an issue in one line.
func issueText(i frames.Issue) string {
	var about []string
	if i.Expected != "" {
		about = append(about, "expected "+i.Expected)
	}
	if i.Got != "" {
		about = append(about, "got "+i.Got)
	}
	text := orRoot(i.Path) + ": " + i.Message
	if len(about) > 0 {
		text += " (" + strings.Join(about, ", ") + ")"
	}
	return jsontext.Clip(oneLine(text), maxLine)
}
