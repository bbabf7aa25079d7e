package etcd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"tako.dev/tako/internal/reason"
)

// bridge hands what etcd logs to the server's log. What etcd calls an error it mostly tries again, at the first start for example
// until it has elected itself: those are for who debugs. What matters shows in the answers that the server gets.
type bridge struct {
	log    *slog.Logger
	quiet  *atomic.Bool // the member is being stopped, and everything that it complains about is that
	fields []zapcore.Field
}

var _ zapcore.Core = bridge{}

func newLogger(quiet *atomic.Bool, log *slog.Logger, end *ending) *zap.Logger {
	return zap.New(bridge{log: log.With("component", "etcd"), quiet: quiet}, zap.WithPanicHook(end), zap.WithFatalHook(end))
}

// Enabled lets errors through.
func (bridge) Enabled(l zapcore.Level) bool { return l >= zapcore.ErrorLevel }

// With remembers fields.
func (b bridge) With(fields []zapcore.Field) zapcore.Core {
	b.fields = append(b.fields[:len(b.fields):len(b.fields)], fields...)
	return b
}

// Check says that the entry is for us.
func (b bridge) Check(e zapcore.Entry, to *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if !b.Enabled(e.Level) {
		return to
	}
	return to.AddCore(e, b)
}

// Write logs an entry.
func (b bridge) Write(e zapcore.Entry, fields []zapcore.Field) error {
	if b.quiet.Load() {
		return nil
	}
	values := zapcore.NewMapObjectEncoder()
	for _, f := range append(b.fields[:len(b.fields):len(b.fields)], fields...) {
		f.AddTo(values)
	}
	level := slog.LevelDebug
	if e.Level > zapcore.ErrorLevel {
		level = slog.LevelError
	}
	var args []any
	for name, value := range values.Fields {
		args = append(args, slog.Any(name, value))
	}
	b.log.Log(context.Background(), level, e.Message, args...)
	return nil
}

// Sync does nothing: nothing is held back.
func (bridge) Sync() error { return nil }

// ending is the end of an etcd that cannot go on, which it says by logging on a level that ends the process.
type ending struct {
	once sync.Once
	done chan struct{} // closed at the end
	err  error         // why; to be read when done is closed
}

var _ zapcore.CheckWriteHook = (*ending)(nil)

// with is the end for a reason. The first one counts.
func (e *ending) with(err error) {
	e.once.Do(func() {
		e.err = err
		close(e.done)
	})
}

// OnWrite is called in place of the end of the process. It never returns: the goroutine that has failed must not go on, and
// must not give up its locks to others, which would. The process has time to say why and ends.
func (e *ending) OnWrite(entry *zapcore.CheckedEntry, fields []zapcore.Field) {
	err := errors.New(entry.Message)
	for _, f := range fields {
		if cause, ok := f.Interface.(error); ok && f.Type == zapcore.ErrorType {
			err = fmt.Errorf("%s: %w", entry.Message, cause)
		}
	}
	ended := &reason.Error{Code: reason.StoreUnreachable, Doing: "run etcd", Cause: err, Hint: "nothing that was acknowledged is lost; start the server again, which systemd does by itself"}
	if isFull(err) {
		ended.Code, ended.Hint = reason.DiskFull, "make room on the file system of the data directory; "+ended.Hint
	}
	e.with(ended)
	select {}
}
