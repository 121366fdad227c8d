package assets

import (
	"regexp"
	"strings"

	"github.com/weavebus/weavebus/pkg/frames"
)

// DefaultPrefix is the mesh's prefix where none is set.
const DefaultPrefix = "wb"

// Names of the shared durable consumers, one for each role that has one.
const (
	HarnessDurable = "harness" // wake-ups, on [InStream]
	LoopDurable    = "loop"    // jobs, on [RunStream]
)

// Lower case only: stream names are the prefix in upper case, and two meshes
// must not share them.
var prefixPattern = regexp.MustCompile(`^[a-z][a-z0-9_-]{0,31}$`)

// CheckPrefix refuses a prefix that is not one subject token usable in stream
// names: ^[a-z][a-z0-9_-]{0,31}$.
func CheckPrefix(prefix string) error {
	if prefixPattern.MatchString(prefix) {
		return nil
	}
	return frames.NewError(frames.CodeValidationInput,
		"prefix: %q does not match %s", prefix, prefixPattern)
}

// Upper gives the form of prefix that begins stream and bucket names: WB for wb.
func Upper(prefix string) string { return strings.ToUpper(prefix) }

// SessionsBucket names the KV bucket with one key, <caller>.<sid>, for each session.
func SessionsBucket(prefix string) string { return Upper(prefix) + "_SESSIONS" }

// SessionsStream names the stream under [SessionsBucket].
func SessionsStream(prefix string) string { return "KV_" + SessionsBucket(prefix) }

// SessionSubject is the subject of a session's key in the stream under [SessionsBucket].
func SessionSubject(prefix, caller, sid string) string {
	return "$KV." + SessionsBucket(prefix) + "." + caller + "." + sid
}

// InStream names the stream of sessions' stored, unprocessed input.
func InStream(prefix string) string { return Upper(prefix) + "_IN" }

// RunStream names the work queue of sessions that have work to do.
func RunStream(prefix string) string { return Upper(prefix) + "_RUN" }

// ToolsBucket names the KV bucket with one key, the tool's name, for what operators
// decided about a tool.
func ToolsBucket(prefix string) string { return Upper(prefix) + "_TOOLS" }

// ToolsStream names the stream under [ToolsBucket].
func ToolsStream(prefix string) string { return "KV_" + ToolsBucket(prefix) }

// ToolSubject is the subject of a tool's key in the stream under [ToolsBucket];
// "*" stands for any.
func ToolSubject(prefix, tool string) string { return "$KV." + ToolsBucket(prefix) + "." + tool }

// BlobsStream names the mesh's object store: a stream in which a message is one
// large value of a session.
func BlobsStream(prefix string) string { return Upper(prefix) + "_BLOBS" }

// BlobSubject is the subject of a session's value; "*" stands for any token.
func BlobSubject(prefix, caller, sid, ref string) string {
	return prefix + ".blob." + caller + "." + sid + "." + ref
}

// CatalogStream names the memory stream of announced tools.
func CatalogStream(prefix string) string { return Upper(prefix) + "_CATALOG" }
