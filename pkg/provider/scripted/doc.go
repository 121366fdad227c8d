// Package scripted is a model that does what a script says: for tests, demos
// and examples without a network. It is deterministic and keeps no state: what
// it answers depends on the request alone, so that any replica, and a run that
// was taken over, continue as if nothing had happened.
//
// # Models
//
// scripted/demo is built in: it plans from what the tools really return. Any
// other name is a script of Config.Scripts, or a file of Config.Files: the name
// itself, or the name with .yaml, .yml or .json.
//
// # Files
//
// A script is one YAML or JSON object. Unknown keys are refused.
//
//	count: all          # which turn is played: the number of assistant messages
//	                    # in the request (all, the default), or of those since
//	                    # the last user message (user)
//	after: error        # when the turns are used up: LIMIT (error, the default),
//	                    # or the last turn again (last)
//	turns:
//	  - expect: README  # optional: a text that the last message must hold
//	    delay: 50ms     # optional: before the turn
//	    chunkDelay: 5ms # optional: before each further chunk
//	    thinking: hm    # a text, or a list of chunks
//	    text: [Let me , look.]
//	    calls:
//	      - name: read_file
//	        id: c1      # the model's own id; default: from the turn's number
//	        arguments: {path: README.md}
//	      - name: write_file
//	        argumentsJson: ['{"path":"a', '.txt"}']   # the text as it is, also
//	                    # broken, whole or in pieces
//	    stop: length    # default: tool-calls with calls, else stop
//	    usage: {inputTokens: 10, outputTokens: 5}
//	  - text: It says …
//	    error:          # ends the turn, after its text
//	      code: BUSY    # any code of the protocol
//	      message: slow down
//	      reason: rate_limit
//	      retryable: true       # default: the code's own
//	      retryAfterMs: 100
//
// Numbers in arguments keep their text. Events come in the order thinking, text,
// calls, stop.
package scripted
