package natsd

import (
	"fmt"
	"log/slog"

	"github.com/nats-io/nats-server/v2/server"
)

// logger passes the server's lines on. The first fatal one is also kept: the
// server goes on running after it, without what failed.
type logger struct {
	log   *slog.Logger
	fatal chan string
}

func newLogger(log *slog.Logger) *logger {
	return &logger{log: log.With("service", "nats"), fatal: make(chan string, 1)}
}

func (l *logger) Noticef(format string, v ...any) { l.log.Debug(fmt.Sprintf(format, v...)) }
func (l *logger) Warnf(format string, v ...any)   { l.log.Warn(fmt.Sprintf(format, v...)) }
func (l *logger) Errorf(format string, v ...any)  { l.log.Error(fmt.Sprintf(format, v...)) }
func (l *logger) Debugf(format string, v ...any)  { l.log.Debug(fmt.Sprintf(format, v...)) }
func (l *logger) Tracef(string, ...any)           {}

func (l *logger) Fatalf(format string, v ...any) {
	line := fmt.Sprintf(format, v...)
	l.log.Error(line)
	select {
	case l.fatal <- line:
	default:
	}
}

var _ server.Logger = (*logger)(nil)
