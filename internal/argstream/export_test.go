package argstream

// Count gives how many calls are open.
func (c *Calls) Count() int { return c.total.calls }

// Held gives how many bytes of text are held.
func (c *Calls) Held() int { return c.total.bytes }
