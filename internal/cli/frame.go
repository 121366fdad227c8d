package cli

import (
	"encoding/base64"
	"encoding/hex"
	"strings"

	"github.com/weavebus/weavebus/pkg/frames"
)

// frameCmd shows what travels on the bus.
type frameCmd struct {
	Encode frameEncodeCmd `cmd:"" help:"Read frames as JSON from stdin, write them as msgpack."`
	Decode frameDecodeCmd `cmd:"" help:"Read a message from stdin (msgpack or JSON), write its frames as JSON, one a line."`
}

type frameEncodeCmd struct {
	As string `name:"format" help:"How to write it: raw, hex, base64." enum:"raw,hex,base64" default:"hex"`
}

type frameDecodeCmd struct {
	From string `name:"format" help:"How it is written: raw, hex, base64." enum:"raw,hex,base64" default:"raw"`
}

// maxFrameInput is the largest message that a shipped server carries.
const maxFrameInput = 8 << 20

// Run encodes.
func (cmd *frameEncodeCmd) Run(c *console) error {
	m, err := c.readMessage("raw")
	if err != nil {
		return err
	}
	data, err := frames.Encode(frames.Msgpack, pointers(m.Frames)...)
	if err != nil {
		return err
	}
	switch cmd.As {
	case "hex":
		c.say("%s", hex.EncodeToString(data))
	case "base64":
		c.say("%s", base64.StdEncoding.EncodeToString(data))
	default:
		c.out.setExact(true)
		if _, err := c.out.Write(data); err != nil {
			return frames.NewError(frames.CodeInternal, "cannot write: %w", err)
		}
	}
	return nil
}

// Run decodes.
func (cmd *frameDecodeCmd) Run(c *console) error {
	m, err := c.readMessage(cmd.From)
	if err != nil {
		return err
	}
	data, err := frames.Encode(frames.JSON, pointers(m.Frames)...)
	if err != nil {
		return err
	}
	c.say("%s", data)
	return nil
}

func pointers(fs []frames.Frame) []*frames.Frame {
	out := make([]*frames.Frame, len(fs))
	for i := range fs {
		out[i] = &fs[i]
	}
	return out
}

func (c *console) readMessage(format string) (frames.Message, error) {
	ctx, stop := c.context()
	defer stop()
	data, err := c.readInput(ctx, "frame", 2*maxFrameInput)
	if err != nil {
		return frames.Message{}, err
	}
	text := strings.TrimSpace(string(data))
	switch format {
	case "hex":
		data, err = hex.DecodeString(text)
	case "base64":
		data, err = base64.StdEncoding.DecodeString(text)
	}
	if err != nil {
		return frames.Message{}, frames.NewError(frames.CodeBadFrame, "not %s: %w", format, err)
	}
	if len(data) > maxFrameInput {
		return frames.Message{}, frames.NewError(frames.CodeTooLarge, "message over the limit of %d bytes", maxFrameInput)
	}
	return frames.Decode(data)
}
