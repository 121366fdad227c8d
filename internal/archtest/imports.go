package archtest

import (
	"slices"
	"strings"
)

// Patterns name packages as the go command does: a path, or a path that ends
// in /... for it and everything below it.
const (
	everything   = "..."
	natsModule   = "github.com/nats-io/..."
	natsServer   = "github.com/nats-io/nats-server/..."
	msgpack      = "github.com/vmihailenco/..."
	kong         = "github.com/alecthomas/kong/..."
	anyPublic    = "pkg/..."
	anyInternal  = "internal/..."
	anyService   = "services/..."
	anyExample   = "examples/..."
	anyCommand   = "cmd/..."
	commandLine  = "internal/cli/..."
	embeddedNATS = "internal/natsd"
	testBus      = "internal/bustest"
)

func importRules() []Rule {
	return slices.Concat(layerRules(), serverRules(), dependencyRules())
}

func layerRules() []Rule {
	return []Rule{
		{
			Name:   "frames-alone",
			Reason: "every program that speaks the protocol needs the codec; it comes without a bus, a server or a schema library",
			find:   only("pkg/frames/...", msgpack),
		},
		{
			Name:   "provider-without-nats",
			Reason: "a model adapter is usable, and tested, without a bus",
			find:   never("pkg/provider/...", natsModule, "pkg/bus/..."),
		},
		{
			Name:   "public-points-down",
			Reason: "who imports a public package must not get services, the command line or its parser with it",
			find:   never(anyPublic, anyService, commandLine, anyCommand, kong),
		},
		{
			Name:   "bus-below-tools",
			Reason: "imports point downward: tool, client, provider and hook stand on the bus",
			find:   never("pkg/bus/...", "pkg/tool/...", "pkg/client/...", "pkg/provider/...", "pkg/hook/..."),
		},
		{
			Name:   "internal-below-services",
			Reason: "imports point downward: only the command line knows which services exist",
			find:   except(never(anyInternal, anyService, commandLine, anyCommand), commandLine),
		},
		{
			Name:   "services-below-commands",
			Reason: "a service runs in any process; it knows neither flags nor the program that starts it",
			find:   never(anyService, commandLine, anyCommand, kong),
		},
		{
			Name:   "services-apart",
			Reason: "each service is a role of its own that talks to the others over the bus only",
			find:   servicesApart,
		},
		{
			Name:   "examples-as-users",
			Reason: "an example shows what any user of the module can write, so it imports what a user can",
			find:   notDirectly(anyExample, anyInternal, anyService, anyCommand),
		},
	}
}

func serverRules() []Rule {
	return []Rule{
		{
			Name:   "nats-server-once",
			Reason: "one place sets up the embedded server, with its loopback and auth rules; tests have one more",
			find:   importedOnlyBy(natsServer, embeddedNATS, testBus),
		},
		{
			Name:   "nats-server-reached",
			Reason: "programs that only connect must not carry a server",
			find:   reachedOnlyBy(natsServer, embeddedNATS, testBus, commandLine, anyCommand),
		},
		{
			Name:   "bustest-in-tests",
			Reason: "a test server in a program is a server without its rules",
			find:   reachedOnlyBy(testBus, testBus),
		},
	}
}

func dependencyRules() []Rule {
	return []Rule{
		{
			Name:   "static-binary",
			Reason: "the binary is static: no package of it may need cgo",
			find:   withoutCgo(anyCommand),
		},
		{
			Name:   "decided-dependencies",
			Reason: "each dependency is a decision with a reason (dependencies.go), not a side effect of go get",
			find:   decidedDependencies,
		},
	}
}

type finder = func(*module) []Finding

func match(path string, patterns ...string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		tree, ok := strings.CutSuffix(pattern, "...")
		return path == strings.TrimSuffix(tree, "/") || ok && strings.HasPrefix(path, tree)
	})
}

// only allows nothing but the standard library, from itself and allowed.
func only(from string, allowed ...string) finder {
	allowed = append(allowed, from)
	return func(m *module) []Finding {
		return m.needs(from, func(dep string) bool {
			return !m.packages[dep].Standard && !match(dep, allowed...)
		})
	}
}

// never forbids that from needs, directly or not, any of the targets.
func never(from string, targets ...string) finder {
	return func(m *module) []Finding {
		return m.needs(from, func(dep string) bool { return match(dep, targets...) })
	}
}

// reachedOnlyBy lets no other package need the target outside its tests.
func reachedOnlyBy(target string, allowed ...string) finder {
	return except(never(everything, target), allowed...)
}

// except drops what a rule finds in the given packages.
func except(find finder, packages ...string) finder {
	return func(m *module) []Finding {
		return slices.DeleteFunc(find(m), func(f Finding) bool { return match(f.Place, packages...) })
	}
}

// importedOnlyBy looks at direct imports, those of tests too.
func importedOnlyBy(target string, allowed ...string) finder {
	return except(func(m *module) []Finding {
		var found []Finding
		for _, path := range m.own {
			p := m.packages[path]
			direct := slices.Concat(p.Imports, p.TestImports, p.XTestImports)
			at := slices.IndexFunc(direct, func(dep string) bool { return match(dep, target) })
			if at >= 0 {
				found = append(found, Finding{Place: path, Detail: "imports " + direct[at]})
			}
		}
		return found
	}, allowed...)
}

// notDirectly lets packages import none of the targets themselves; what they
// import may.
func notDirectly(from string, targets ...string) finder {
	return func(m *module) []Finding {
		var found []Finding
		for _, path := range m.own {
			if !match(path, from) {
				continue
			}
			for _, dep := range m.packages[path].Imports {
				if match(dep, targets...) {
					found = append(found, Finding{Place: path, Detail: "imports " + dep})
				}
			}
		}
		return found
	}
}

// servicesApart lets a service import its own folder only.
func servicesApart(m *module) []Finding {
	var found []Finding
	for _, path := range m.own {
		if !match(path, anyService) {
			continue
		}
		home := strings.Join(strings.SplitN(path, "/", 3)[:2], "/") + "/..."
		found = append(found, m.needs(path, func(dep string) bool {
			return match(dep, anyService) && !match(dep, home)
		})...)
	}
	return found
}

func withoutCgo(from string) finder {
	return func(m *module) []Finding {
		return m.needs(from, func(dep string) bool {
			p := m.packages[dep]
			return !p.Standard && len(p.CgoFiles) > 0
		})
	}
}

// needs finds the packages of from that need a forbidden package: one finding
// a package, with the chain of imports that leads there.
func (m *module) needs(from string, forbidden func(string) bool) []Finding {
	var found []Finding
	for _, path := range m.own {
		if !match(path, from) {
			continue
		}
		if chain := m.chain(path, forbidden); chain != nil {
			found = append(found, Finding{Place: path, Detail: "imports " + strings.Join(chain, " → ")})
		}
	}
	return found
}

// chain returns a shortest chain of imports from a package to a forbidden
// one, without the package itself; nil means none.
func (m *module) chain(from string, forbidden func(string) bool) []string {
	seen := map[string]bool{from: true}
	queue := [][]string{{from}}
	for len(queue) > 0 {
		at := queue[0]
		queue = queue[1:]
		for _, next := range m.imports(at[len(at)-1]) {
			if seen[next] || m.packages[next] == nil {
				continue
			}
			seen[next] = true
			step := append(slices.Clone(at), next)
			if forbidden(next) {
				return step[1:]
			}
			queue = append(queue, step)
		}
	}
	return nil
}

func (m *module) imports(path string) []string {
	if p := m.packages[path]; p != nil && !p.Standard {
		return p.Imports
	}
	return nil
}
