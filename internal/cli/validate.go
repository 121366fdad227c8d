package cli

import (
	"fmt"
	"net"
	"net/url"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/alecthomas/kong"

	"github.com/weavebus/weavebus/internal/assets"
	"github.com/weavebus/weavebus/pkg/frames"
	"github.com/weavebus/weavebus/pkg/provider"
)

// What follows refuses wrong values before anything is started. Each Validate is
// called by kong for the commands that were named, whatever a value came from; its
// errors name the flag.

// refuseEmpty refuses an empty text as a value of any argument, flag or variable:
// it is a variable of a script that was not set. A variable that is not UTF-8 is
// refused too, as an argument is by readable.
func refuseEmpty(ctx *kong.Context) error {
	for _, p := range ctx.Path {
		switch {
		case p.Positional != nil && hasEmpty(p.Positional.Target):
			return fmt.Errorf("<%s>: is empty", p.Positional.Name)
		case p.Flag != nil && !p.Resolved && hasEmpty(p.Flag.Target):
			return fmt.Errorf("--%s: is empty", p.Flag.Name)
		}
	}
	for _, f := range ctx.Flags() {
		for _, name := range f.Envs {
			value, set := os.LookupEnv(name)
			switch {
			case set && value == "" && strings.HasPrefix(name, "WEAVEBUS_"):
				return fmt.Errorf("%s: is empty: give it a value, or unset it", name)
			case !utf8.ValidString(value):
				return fmt.Errorf("%s: is not UTF-8", name)
			}
		}
	}
	return nil
}

func hasEmpty(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.String:
		return v.Len() == 0
	case reflect.Slice:
		for i := range v.Len() {
			if hasEmpty(v.Index(i)) {
				return true
			}
		}
	}
	return false
}

// Validate checks the flags of every command.
func (g *globals) Validate() error {
	if g.NATS != "" {
		if err := checkNATS(g.NATS); err != nil {
			return fmt.Errorf("--nats (WEAVEBUS_NATS): %w", err)
		}
	}
	if g.Prefix != "" && assets.CheckPrefix(g.Prefix) != nil {
		return fmt.Errorf("--prefix (WEAVEBUS_PREFIX): %q: want lower-case letters, digits and _, such as wb", g.Prefix)
	}
	if g.As == "tool" || g.As == "sys" {
		return fmt.Errorf("--as (WEAVEBUS_AS): %q is reserved", g.As)
	}
	if err := checkName("--as (WEAVEBUS_AS)", g.As); err != nil {
		return err
	}
	return checkName("--mesh (WEAVEBUS_MESH)", g.Mesh)
}

func checkName(what, name string) error {
	switch {
	case name == "":
		return fmt.Errorf("%s: is empty", what)
	case frames.ValidName(name):
		return nil
	}
	return fmt.Errorf("%s: %q: want letters, digits, _ and -, at most 64 of them", what, name)
}

// checkNATS takes one URL or several with commas between, each with or without
// its scheme. A URL is not repeated in an error: it may hold a password.
func checkNATS(urls string) error {
	for one := range strings.SplitSeq(urls, ",") {
		one = strings.TrimSpace(one)
		if !strings.Contains(one, "://") {
			one = "nats://" + one
		}
		u, err := url.Parse(one)
		switch {
		case err != nil:
			return fmt.Errorf("is no URL, such as nats://127.0.0.1:4222")
		case !slices.Contains([]string{"nats", "tls", "ws", "wss"}, u.Scheme):
			return fmt.Errorf("scheme %q: want nats, tls, ws or wss", u.Scheme)
		case u.Hostname() == "":
			return fmt.Errorf("names no host: want one such as nats://127.0.0.1:4222")
		case u.Port() != "":
			if err := checkPort(u.Port(), 1); err != nil {
				return err
			}
		}
	}
	return nil
}

func checkPort(port string, least int) error {
	if n, err := strconv.Atoi(port); err != nil || n < least || n > 65535 {
		return fmt.Errorf("port %s is not between %d and 65535", port, least)
	}
	return nil
}

func checkAdmin(addr string) error {
	if addr == "" {
		return nil
	}
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return fmt.Errorf("--admin (WEAVEBUS_ADMIN): %q is not [HOST]:PORT", addr)
	}
	if err := checkPort(port, 0); err != nil {
		return fmt.Errorf("--admin (WEAVEBUS_ADMIN): %w", err)
	}
	return nil
}

// checkAtLeast refuses a duration below one that a flag takes; nil is none given.
func checkAtLeast(flag string, d *time.Duration, least time.Duration) error {
	if d != nil && *d < least {
		return fmt.Errorf("%s: %v is less than %v", flag, *d, least)
	}
	return nil
}

// Validate checks the flags of call.
func (cmd *callCmd) Validate() error {
	if cmd.Args != "" && len(cmd.Pairs) > 0 {
		return fmt.Errorf("give key=value pairs or --args, not both")
	}
	if err := checkPairs("<arguments>", cmd.Pairs); err != nil {
		return err
	}
	return checkAtLeast("--timeout", cmd.Timeout, time.Millisecond)
}

func checkPairs(what string, pairs []string) error {
	for _, p := range pairs {
		if _, _, _, err := splitPair(p); err != nil {
			return fmt.Errorf("%s: %s", what, frames.AsError(err).Message)
		}
	}
	return nil
}

// Validate checks the flags of run.
func (cmd *runCmd) Validate() error {
	if _, _, err := provider.SplitModel(cmd.Model); err != nil {
		return fmt.Errorf("--model (WEAVEBUS_MODEL): %q: want PROVIDER/MODEL, such as scripted/demo", cmd.Model)
	}
	if cmd.Session != "" {
		if err := checkName("--session", cmd.Session); err != nil {
			return err
		}
	}
	if cmd.MaxIterations != nil && *cmd.MaxIterations < 0 {
		return fmt.Errorf("--max-iterations: %d is negative", *cmd.MaxIterations)
	}
	if err := checkPairs("--param", cmd.Param); err != nil {
		return err
	}
	return cmd.outage.Validate()
}

// Validate checks the flag.
func (o *outage) Validate() error { return checkAtLeast("--outage", &o.Outage, time.Millisecond) }

// Validate checks the flags of up.
func (cmd *upCmd) Validate() error {
	if err := checkPort(strconv.Itoa(cmd.Port), 0); err != nil {
		return fmt.Errorf("--port (WEAVEBUS_PORT): %w", err)
	}
	if cmd.Sync < 0 {
		return fmt.Errorf("--sync: %v is negative", cmd.Sync)
	}
	return checkAdmin(cmd.Admin)
}

// Validate checks the flags of serve; which roles there are is known later.
func (cmd *serveCmd) Validate() error {
	for i, name := range cmd.Roles {
		if slices.Contains(cmd.Roles[:i], name) {
			return fmt.Errorf("<role>: %s stands twice", name)
		}
	}
	return checkAdmin(cmd.Admin)
}

// Validate checks the flag.
func (cmd *initCmd) Validate() error {
	if cmd.Replicas == nil || slices.Contains([]int{1, 3, 5}, *cmd.Replicas) {
		return nil
	}
	return fmt.Errorf("--replicas (WEAVEBUS_REPLICAS): %d is not 1, 3 or 5", *cmd.Replicas)
}

// Validate checks the argument.
func (s sessionID) Validate() error { return checkName("session id", string(s)) }
