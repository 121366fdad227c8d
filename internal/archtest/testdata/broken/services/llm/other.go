package llm

var elsewhere int

func shadow() {
	var counted int
	counted = elsewhere
	_ = counted
	written["x"] = 1
}
