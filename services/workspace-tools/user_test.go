package workspacetools

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/weavebus/weavebus/internal/workspace"
	"github.com/weavebus/weavebus/pkg/frames"
)

// Commands run as root only where that was allowed, and the log says so.
func TestCommandUser(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		user  workspace.CommandUser
		allow bool
		code  frames.Code
		log   string
	}{
		{workspace.CommandUser{UID: 0}, false, frames.CodeDenied, ""},
		{workspace.CommandUser{UID: 0}, true, "", "commands run as root"},
		{workspace.CommandUser{UID: 1000, Switched: true}, false, "", "commands run as the workspace's owner"},
		{workspace.CommandUser{UID: 1000}, false, "", ""},
	} {
		var log bytes.Buffer
		err := checkUser(tc.user, tc.allow, slog.New(slog.NewTextHandler(&log, nil)))
		if frames.CodeOf(err) != tc.code || !strings.Contains(log.String(), tc.log) || (tc.log == "") != (log.Len() == 0) {
			t.Errorf("%+v, allowed %v: %v, log %q", tc.user, tc.allow, err, log.String())
		}
	}
}
