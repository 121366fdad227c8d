package manifesttools

import (
	"cmp"
	"net/netip"
	"path/filepath"
	"strings"
	"time"

	"github.com/weavebus/weavebus/internal/process"
	"github.com/weavebus/weavebus/pkg/frames"
)

// Config says which declarations are served, and what they may do.
type Config struct {
	// Identity is who the service connects as. Default: "manifest".
	Identity string
	// Dirs are folders whose *.json, *.yaml and *.yml files declare tools; they
	// must exist. They are not searched for further folders. Default: none.
	Dirs []string
	// Manifests are files and http(s) URLs of published manifests. Default: none.
	// One folder or manifest is required.
	Manifests []string
	// Environ is the "KEY=value" list that the environment of commands is picked
	// from, and the secrets. Default: empty.
	Environ []string
	// AllowSecrets are the secrets that declarations may name: NAME of Environ, or
	// an absolute file; followed by @HOST it may be sent to that host only.
	// Manifests from a URL may name none without a host. Default: none.
	AllowSecrets []string
	// AllowPrivate are networks that endpoints may lie in although they are not
	// public: an address, a prefix such as 10.0.0.0/8, or one of the words loopback,
	// link-local, private and any. Default: none.
	AllowPrivate []string
	// AllowRoot lets commands run as root, where the process is root's and so is
	// the folder of their declaration; in a folder of another owner they run as that
	// owner all the same. Default: such a folder is refused.
	AllowRoot bool
	// ResultBytes bounds a command's output and an endpoint's answer. Default: 1 MiB.
	ResultBytes int
	// Refresh is how often manifests of a URL are fetched again. Default: 5 min.
	Refresh time.Duration
}

func (c Config) withDefaults() Config {
	c.Identity = cmp.Or(c.Identity, "manifest")
	c.ResultBytes = cmp.Or(c.ResultBytes, process.DefaultOutputBytes)
	c.Refresh = cmp.Or(c.Refresh, 5*time.Minute)
	return c
}

func (c Config) validate() error {
	switch {
	case len(c.Dirs)+len(c.Manifests) == 0:
		return invalid("Dirs and Manifests: neither a folder nor a manifest is given")
	case c.ResultBytes < 8:
		return invalid("ResultBytes: %d is less than 8", c.ResultBytes)
	case c.Refresh < time.Second:
		return invalid("Refresh: %v is less than 1 s", c.Refresh)
	}
	for _, m := range c.Manifests {
		if err := checkManifestName(m); err != nil {
			return err
		}
	}
	return nil
}

func checkManifestName(m string) error {
	scheme, _, isURL := strings.Cut(m, "://")
	if !isURL {
		return nil
	}
	if u, err := parseURL(m); err != nil {
		return invalid("Manifests: the URL %s", err)
	} else if u.Scheme != scheme {
		return invalid("Manifests: write the scheme as %s", u.Scheme)
	}
	return nil
}

func invalid(format string, args ...any) error {
	return frames.NewError(frames.CodeValidationInput, format, args...)
}

// secretRule is a secret that the operator allowed.
type secretRule struct {
	// ref is the name of a variable, or an absolute path.
	ref string
	// host is where it may be sent; empty is anywhere.
	host string
}

func secretRules(allowed []string) ([]secretRule, error) {
	rules := make([]secretRule, 0, len(allowed))
	for _, a := range allowed {
		r := secretRule{ref: a}
		if at := strings.LastIndexByte(a, '@'); at >= 0 {
			r = secretRule{a[:at], strings.ToLower(a[at+1:])}
			if r.host == "" {
				return nil, invalid("AllowSecrets: %q names no host after the @", a)
			}
		}
		if !filepath.IsAbs(r.ref) && !validVariable(r.ref) {
			return nil, invalid("AllowSecrets: %q is neither the name of a variable nor an absolute file", r.ref)
		}
		rules = append(rules, r)
	}
	return rules, nil
}

func validVariable(name string) bool {
	return frames.ValidName(name) && !strings.Contains(name, "-") && !strings.ContainsRune("0123456789", rune(name[0]))
}

// networkWords are the words for networks that are not public.
var networkWords = map[string][]string{
	"loopback":   {"127.0.0.0/8", "::1/128"},
	"link-local": {"169.254.0.0/16", "fe80::/10"},
	"private":    {"10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7"},
	"any":        {"0.0.0.0/0", "::/0"},
}

func networks(allowed []string) ([]netip.Prefix, error) {
	var out []netip.Prefix
	for _, a := range allowed {
		texts, ok := networkWords[a]
		if !ok {
			texts = []string{a}
		}
		for _, text := range texts {
			p, err := prefix(text)
			if err != nil {
				return nil, invalid("AllowPrivate: %q is no address, no prefix such as 10.0.0.0/8, and none of loopback, link-local, private, any", a)
			}
			out = append(out, p)
		}
	}
	return out, nil
}

func prefix(text string) (netip.Prefix, error) {
	if a, err := netip.ParseAddr(text); err == nil {
		return a.Unmap().WithZone("").Prefix(a.Unmap().BitLen())
	}
	p, err := netip.ParsePrefix(text)
	if err != nil {
		return netip.Prefix{}, err
	}
	return p.Masked(), nil
}
