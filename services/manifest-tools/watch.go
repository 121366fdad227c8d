package manifesttools

import (
	"log/slog"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/fsnotify/fsnotify"
)

const (
	// settle is how long nothing has to change before files are read: an editor
	// writes in several steps.
	settle = 100 * time.Millisecond
	// settleMost is when they are read although it does.
	settleMost = time.Second
	// pollPause is how often they are read without a sign: file systems of other
	// hosts give none. lostPause is the same while a folder cannot be read.
	pollPause = 10 * time.Second
	lostPause = time.Second
)

// watcher tells when files of folders may have changed.
type watcher struct {
	log  *slog.Logger
	fs   *fsnotify.Watcher // nil where the system has none to give
	dirs []string
	// names are files that count beside those that declare tools.
	names map[string]bool
	// any: every change counts, as something that was missing may have come.
	any atomic.Bool

	changed chan struct{}
	done    chan struct{}
}

func watch(dirs, files []string, log *slog.Logger) *watcher {
	w := &watcher{log: log, dirs: dirs, names: map[string]bool{}, changed: make(chan struct{}, 1), done: make(chan struct{})}
	for _, f := range files {
		w.dirs = append(w.dirs, filepath.Dir(f))
		w.names[filepath.Base(f)] = true
	}
	var err error
	if w.fs, err = fsnotify.NewWatcher(); err != nil {
		log.Warn("changes are seen late: files are read each 10 s only", "error", err)
		close(w.done)
		return w
	}
	w.again()
	go w.run()
	return w
}

// again watches the folders, also those that were put in the place of others.
func (w *watcher) again() {
	if w.fs == nil {
		return
	}
	for _, dir := range w.dirs {
		if err := w.fs.Add(dir); err != nil {
			w.log.Debug("cannot watch a folder", "folder", dir, "error", err)
		}
	}
}

func (w *watcher) close() {
	if w.fs != nil {
		_ = w.fs.Close() // it only gives up its own descriptors
	}
	<-w.done
}

// run gathers signs until there are none for a while.
func (w *watcher) run() {
	defer close(w.done)
	quiet := time.NewTimer(time.Hour)
	defer quiet.Stop()
	quiet.Stop()
	var first time.Time // of the signs that were not told yet
	for {
		select {
		case e, ok := <-w.fs.Events:
			if !ok {
				return
			}
			if !w.counts(e) {
				continue
			}
		case _, ok := <-w.fs.Errors: // some were lost
			if !ok {
				return
			}
		case <-quiet.C:
			first = time.Time{}
			w.tell()
			continue
		}
		if first.IsZero() {
			first = time.Now()
		}
		quiet.Reset(max(0, min(settle, settleMost-time.Since(first))))
	}
}

func (w *watcher) tell() {
	select {
	case w.changed <- struct{}{}:
	default: // told already
	}
}

// counts tells a sign that may mean new declarations. A mounted ConfigMap changes
// by a link "..data".
func (w *watcher) counts(e fsnotify.Event) bool {
	name := filepath.Base(e.Name)
	return w.any.Load() || declares(name) || w.names[name] || strings.HasPrefix(name, "..") || w.isFolder(e.Name)
}

func (w *watcher) isFolder(name string) bool {
	for _, dir := range w.dirs {
		if filepath.Clean(dir) == filepath.Clean(name) {
			return true
		}
	}
	return false
}
