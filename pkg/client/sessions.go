package client

import (
	"context"
	"encoding/json"
	"time"

	"github.com/weavebus/weavebus/pkg/frames"
	"github.com/weavebus/weavebus/pkg/provider"
)

// SessionInfo is what the mesh tells of a session.
type SessionInfo struct {
	ID          string `json:"sessionId"`
	Status      string `json:"status"`
	CurrentTurn int    `json:"currentTurn"`
	MaxTurns    int    `json:"maxTurns"`
	Workspace   string `json:"workspace,omitempty"`
	Task        string `json:"task,omitempty"`
	NodeID      string `json:"nodeId,omitempty"`
	// Model is PARAM model of a session that is told alone: empty where a program
	// drives it from outside.
	Model   string       `json:"model,omitempty"`
	Epoch   uint64       `json:"epoch"`
	Created int64        `json:"created"`
	Updated int64        `json:"updated"`
	Entries uint64       `json:"n"`
	Usage   SessionUsage `json:"usage,omitzero"`
}

// Closed reports whether the session takes no more input.
func (s *SessionInfo) Closed() bool {
	return s.Status == "done" || s.Status == "failed" || s.Status == "cancelled"
}

// UpdatedAt gives the time of the session's last entry.
func (s *SessionInfo) UpdatedAt() time.Time { return time.UnixMilli(s.Updated) }

// ask sends one question about sessions.
func (c *Client) ask(ctx context.Context, question map[string]any) ([]frames.Frame, error) {
	q := frames.Meta(question)
	return c.conn.Request(ctx, c.conn.Subjects.Sessions(c.Caller()), &q)
}

// Sessions lists the caller's sessions by their ids.
func (c *Client) Sessions(ctx context.Context) ([]SessionInfo, error) {
	var out []SessionInfo
	for after := ""; ; {
		fs, err := c.ask(ctx, map[string]any{"op": "list", "after": after})
		if err != nil {
			return nil, err
		}
		page, rest := splitPage(fs)
		for i := range rest {
			info, err := sessionInfo(&rest[i])
			if err != nil {
				return nil, err
			}
			out = append(out, *info)
		}
		if more, _ := page.Lookup("more").Bool(); !more {
			return out, nil
		}
		after, _ = page.Lookup("after").Text()
	}
}

// SessionInfo gives one session; one that does not exist is NOT_FOUND.
func (c *Client) SessionInfo(ctx context.Context, id string) (*SessionInfo, error) {
	fs, err := c.ask(ctx, map[string]any{"op": "get", "sid": id})
	if err != nil {
		return nil, err
	}
	for i := range fs {
		if fs[i].Content.Lookup("session") != nil {
			return sessionInfo(&fs[i])
		}
	}
	return nil, frames.NewError(frames.CodeNoResult, "the harness answered without the session")
}

func sessionInfo(f *frames.Frame) (*SessionInfo, error) {
	text, err := f.Content.Lookup("session").JSON()
	if err != nil {
		return nil, err
	}
	var s struct {
		SessionInfo

		Params struct {
			Model string `json:"model"`
		} `json:"params"`
	}
	if err := json.Unmarshal(text, &s); err != nil {
		return nil, frames.NewError(frames.CodeNoResult, "unreadable session: %w", err)
	}
	s.Model = s.Params.Model
	return &s.SessionInfo, nil
}

// DeleteSession removes a session with its history. One whose turn is running is
// CONFLICT, unless force is set.
func (c *Client) DeleteSession(ctx context.Context, id string, force bool) error {
	_, err := c.ask(ctx, map[string]any{"op": "delete", "sid": id, "force": force})
	return err
}

// Messages gives the conversation of a session, from its beginning.
func (c *Client) Messages(ctx context.Context, id string) ([]provider.Message, error) {
	var out []provider.Message
	for after := uint64(0); ; {
		fs, err := c.ask(ctx, map[string]any{"op": "history", "sid": id, "after": after})
		if err != nil {
			return nil, err
		}
		page, rest := splitPage(fs)
		for i := range rest {
			m, err := message(&rest[i])
			if err != nil {
				return nil, err
			}
			out = append(out, *m)
		}
		if more, _ := page.Lookup("more").Bool(); !more {
			return out, nil
		}
		after, _ = page.Lookup("after").Uint64()
	}
}

func message(f *frames.Frame) (*provider.Message, error) {
	text, err := f.Content.Lookup("message").JSON()
	if err != nil {
		return nil, err
	}
	m := &provider.Message{}
	if err := json.Unmarshal(text, m); err != nil {
		return nil, frames.NewError(frames.CodeNoResult, "unreadable message: %w", err)
	}
	return m, nil
}

// history gives durable frames of a session behind an entry, and whether there
// are more. Each comes wrapped in a META, so that an END of the session does not
// end the answer.
func (c *Client) history(ctx context.Context, id string, after uint64) ([]frames.Frame, bool, error) {
	fs, err := c.ask(ctx, map[string]any{"op": "history", "sid": id, "after": after, "frames": true})
	if err != nil {
		return nil, false, err
	}
	page, rest := splitPage(fs)
	out := make([]frames.Frame, 0, len(rest))
	for i := range rest {
		m, err := frames.Decode(rest[i].Content.Lookup("frame"))
		if err != nil {
			return nil, false, frames.NewError(frames.CodeNoResult, "unreadable history: %w", err)
		}
		out = append(out, m.Frames...)
	}
	more, _ := page.Lookup("more").Bool()
	return out, more, nil
}

// splitPage takes the META {page} off an answer.
func splitPage(fs []frames.Frame) (page frames.Raw, rest []frames.Frame) {
	for i := range fs {
		f := &fs[i]
		if p := f.Content.Lookup("page"); f.Type == frames.TypeMeta && f.Entry == 0 && p != nil {
			return p, append(fs[:i:i], fs[i+1:]...)
		}
	}
	return nil, fs
}
