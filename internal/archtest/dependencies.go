package archtest

// decided returns the modules that go.mod may require directly, each with
// what it is for. What those need in turn comes with them.
func decided() map[string]string {
	return map[string]string{
		"github.com/alecthomas/kong":               "the command line's parser",
		"github.com/fsnotify/fsnotify":             "tool manifests are read again when they change",
		"github.com/goccy/go-yaml":                 "policy files and tool manifests in YAML",
		"github.com/gofrs/flock":                   "one process a state folder",
		"github.com/google/go-cmp":                 "differences that a failing test can print",
		"github.com/google/jsonschema-go":          "a schema from a Go type, for typed tools",
		"github.com/nats-io/jwt/v2":                "accounts for tenants",
		"github.com/nats-io/nats-server/v2":        "the embedded server of up and run",
		"github.com/nats-io/nats.go":               "the bus",
		"github.com/nats-io/nkeys":                 "identities",
		"github.com/nats-io/nuid":                  "ids of calls, sessions and instances",
		"github.com/rogpeppe/go-internal":          "command line tests as scripts",
		"github.com/santhosh-tekuri/jsonschema/v6": "validation of arguments and results",
		"github.com/vmihailenco/msgpack/v5":        "the encoding of frames",
		"go.uber.org/goleak":                       "tests fail on goroutines left behind",
		"golang.org/x/sync":                        "groups of goroutines with one error",
		"golang.org/x/sys":                         "process groups and limits of commands",
		"golang.org/x/term":                        "is this a terminal, and how wide",
		"golang.org/x/text":                        "Unicode forms of file names",
		"pgregory.net/rapid":                       "property tests of codecs and state machines",
	}
}

func decidedDependencies(m *module) []Finding {
	reasons := decided()
	var found []Finding
	for _, r := range m.requires {
		if _, ok := reasons[r.Path]; !ok && !r.Indirect {
			found = append(found, Finding{Place: "go.mod", Detail: r.Path + " has no reason in dependencies.go"})
		}
	}
	return found
}
