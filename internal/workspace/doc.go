// Package workspace is the engine under the workspace tools: it reads, writes
// and lists files inside one directory and runs commands in it. It knows no bus.
//
// Files are reached through [os.Root] only, so neither "..", nor an absolute
// path, nor a link leads out of the directory, also while somebody swaps
// directories for links. What os.Root does not stop is not stopped here either:
// bind mounts, and a hard link that somebody with access to the disk made to an
// outside file can be read (writing replaces the link and leaves that file alone).
//
// Commands run in a session and process group of their own, and the whole group
// is gone when [Workspace.RunCommand] returns. A process that left the group (by
// setsid, or by the shell's set -m) escapes that, and a command may touch
// whatever its user may touch: the boundary of a command is its user, not this
// package.
//
// Every error that leaves the package is a *frames.Error with a reason, and
// none of them names a path of the host. The package works on Linux and macOS.
package workspace
