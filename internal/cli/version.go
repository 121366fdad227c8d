package cli

import (
	"runtime"
	"runtime/debug"

	"github.com/weavebus/weavebus/pkg/frames"
)

// versionCmd prints the version.
type versionCmd struct{}

type versionInfo struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	Protocol int    `json:"protocol"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// version reads what the build wrote into the binary.
func version() versionInfo {
	v := versionInfo{Version: "devel", Protocol: frames.Version, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	if m := info.Main.Version; m != "" && m != "(devel)" {
		v.Version = m
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			v.Revision = s.Value
		}
	}
	return v
}

// Run prints the version.
func (*versionCmd) Run(c *console) error {
	v := version()
	if c.JSON {
		return c.print(v)
	}
	c.say("weavebus %s (protocol %d, %s, %s)", v.Version, v.Protocol, v.Go, v.Platform)
	return nil
}
