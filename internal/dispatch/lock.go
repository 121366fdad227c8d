package dispatch

import (
	"bytes"
	"encoding/json"

	"github.com/weavebus/weavebus/pkg/frames"
)

// LockOf gives what calls have in common that run one at a time: the value of
// the argument that the declaration's lockKey names, however it is written. ""
// is none.
func LockOf(d *frames.Declaration, args json.RawMessage) string {
	if d.LockKey == "" {
		return ""
	}
	var named map[string]json.RawMessage
	if json.Unmarshal(args, &named) != nil || named[d.LockKey] == nil {
		return ""
	}
	dec := json.NewDecoder(bytes.NewReader(named[d.LockKey]))
	dec.UseNumber()
	var value any
	if dec.Decode(&value) != nil {
		return ""
	}
	text, err := json.Marshal(value)
	if err != nil {
		return ""
	}
	return d.LockKey + "=" + string(text)
}

// lockOf is LockOf among the calls of one workspace.
func (p *Prepared) lockOf() string {
	lock := LockOf(p.Declaration, p.Arguments)
	if lock != "" {
		lock = p.key + "\x00" + lock
	}
	return lock
}
