package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/weavebus/weavebus/pkg/bus"
	"github.com/weavebus/weavebus/pkg/client"
	"github.com/weavebus/weavebus/pkg/frames"
)

// modelLimit bounds the wait for a model's answer.
const modelLimit = time.Minute

// maxNamed bounds the tools that are named one by one.
const maxNamed = 20

func (d *doctor) router(ctx context.Context) []finding {
	ctx, cancel := context.WithTimeout(ctx, doctorLimit)
	defer cancel()
	tools, err := d.client.Tools(ctx)
	if err != nil {
		return []finding{absent("router", err)}
	}
	if len(tools) == 0 {
		return []finding{{"router", "warn", "it knows no tool", "start a service of tools, such as weavebus up --workspace DIR"}}
	}
	return []finding{{"router", "ok", fmt.Sprintf("it knows %d tools", len(tools)), ""}}
}

// absent is the finding of a role that does not answer.
func absent(role string, err error) finding {
	if frames.CodeOf(err) == frames.CodeUnavailable {
		return finding{role, "fail", "no " + role + " answers", "start one: weavebus serve " + role + " --nats URL"}
	}
	return finding{role, "fail", frames.AsError(err).Message, "see its log"}
}

// tools gives the count of instances, and names the tools that cannot be called.
func (d *doctor) tools(ctx context.Context) []finding {
	ctx, cancel := context.WithTimeout(ctx, doctorLimit)
	defer cancel()
	tools, err := d.client.Tools(ctx)
	if err != nil || len(tools) == 0 {
		return nil // the router's finding says it
	}
	var ready, instances int
	var bad []finding
	for i := range tools {
		instances += tools[i].Instances
		if f := toolFinding(&tools[i]); f.Status == "ok" {
			ready++
		} else if len(bad) < maxNamed {
			bad = append(bad, f)
		}
	}
	all := finding{"tools", "ok", fmt.Sprintf("%d of %d are ready, on %d instances", ready, len(tools), instances), ""}
	return append([]finding{all}, bad...)
}

func toolFinding(t *client.Tool) finding {
	name := "tool " + t.Name
	switch {
	case t.Refused != nil:
		return finding{name, "warn", "refused: " + t.Refused.Message, "mend its declaration, or stop the service that announces it"}
	case stateOf(t) == "down":
		return finding{name, "warn", "no instance of it runs", "start its service"}
	case stateOf(t) == client.StateDisabled:
		return finding{name, "warn", "it is disabled", "weavebus tools enable " + t.Name + ", if it is to be called"}
	case stateOf(t) != "ready":
		return finding{name, "warn", "it is " + stateOf(t), "see weavebus tools"}
	}
	return finding{name, "ok", fmt.Sprintf("%d instances", t.Instances), ""}
}

// probe is the id of a session that is never made.
const probe = "doctor-probe"

func (d *doctor) harness(ctx context.Context) []finding {
	ctx, cancel := context.WithTimeout(ctx, doctorLimit)
	defer cancel()
	_, err := d.client.SessionInfo(ctx, probe)
	if err != nil && frames.CodeOf(err) != frames.CodeNotFound {
		return []finding{absent("harness", err)}
	}
	return []finding{{"harness", "ok", "it answers for sessions", ""}}
}

// loop asks for a run that no loop begins.
func (d *doctor) loop(ctx context.Context) []finding {
	if err := refusedStart(ctx, d.conn, d.conn.Loop(d.conn.Identity())); err != nil {
		return []finding{absent("loop", err)}
	}
	return []finding{{"loop", "ok", "it takes runs", ""}}
}

// refusedStart sends a START without what it needs: that is refused by who listens.
func refusedStart(ctx context.Context, conn *bus.Conn, subject string) error {
	ctx, cancel := context.WithTimeout(ctx, doctorLimit)
	defer cancel()
	start := frames.Start()
	_, err := conn.Request(ctx, subject, &start)
	switch frames.CodeOf(err) {
	case frames.CodeValidationInput, frames.CodeBadFrame, frames.CodeNotFound:
		return nil
	}
	return err
}

// providers looks which of the model providers of this binary are on the bus, as
// the identity that may ask them, where its key is at hand.
func (d *doctor) providers(ctx context.Context) []finding {
	nc, closeIt, err := d.as(ctx, "loop")
	if err != nil {
		return []finding{{"llm", "fail", frames.AsError(err).Message, "check the key of the identity loop"}}
	}
	defer closeIt()
	if nc == d.conn.NATS() && nc.AuthRequired() {
		return []finding{{"llm", "warn", "not checked: only the loop may ask adapters", "name a model to ask: weavebus doctor --model PROVIDER/MODEL"}}
	}
	conn, err := bus.New(nc, nc.Opts.Name, bus.WithPrefix(d.c.Prefix))
	if err != nil {
		return []finding{{"llm", "fail", frames.AsError(err).Message, ""}}
	}
	defer conn.Close()
	return d.askProviders(ctx, conn)
}

func (d *doctor) askProviders(ctx context.Context, conn *bus.Conn) []finding {
	known, err := (&models{}).providers()
	if err != nil {
		return []finding{{"llm", "fail", frames.AsError(err).Message, ""}}
	}
	var here, missing []string
	for _, p := range known {
		if refusedStart(ctx, conn, conn.LLM(p.Name())) == nil {
			here = append(here, p.Name())
		} else {
			missing = append(missing, p.Name())
		}
	}
	if len(here) == 0 {
		return []finding{{"llm", "fail", "no adapter answers for " + strings.Join(missing, ", "), "start one: weavebus serve llm --nats URL"}}
	}
	found := "adapters answer for " + strings.Join(here, ", ")
	if len(missing) > 0 {
		found += ", none for " + strings.Join(missing, ", ")
	}
	return []finding{{"llm", "ok", found, ""}}
}

// model has a model answer a short question.
func (d *doctor) model(ctx context.Context, model string) finding {
	ctx, cancel := context.WithTimeout(ctx, modelLimit)
	defer cancel()
	began := time.Now()
	messages := []map[string]string{{"role": "user", "content": "Answer with the word ok."}}
	var failed error
	for f, err := range d.client.Run(ctx, frames.Param("model", model), frames.Param("messages", messages), frames.Param("maxIterations", 0)) {
		if err != nil {
			failed = err
		} else if f.Type == frames.TypeError {
			failed = f.Err()
		}
	}
	if failed != nil {
		e := frames.AsError(failed)
		return finding{"model " + model, "fail", string(e.Code) + ": " + e.Message, "check the model's name, the key and the endpoint that weavebus up or serve llm was started with"}
	}
	return finding{"model " + model, "ok", fmt.Sprintf("it answered in %v", time.Since(began).Round(time.Millisecond)), ""}
}
