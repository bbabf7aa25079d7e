package etcd

import (
	"context"
	"log/slog"
	"sync/atomic"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// bridge hands what etcd logs to the server's log. What etcd calls an error it mostly tries again, at the first start for example
// until it has elected itself: those are for who debugs. What matters shows in the answers that the server gets.
type bridge struct {
	log    *slog.Logger
	quiet  *atomic.Bool // the member is being stopped, and everything that it complains about is that
	fields []zapcore.Field
}

var _ zapcore.Core = bridge{}

func newLogger(quiet *atomic.Bool, log *slog.Logger) *zap.Logger {
	return zap.New(bridge{log: log.With("component", "etcd"), quiet: quiet})
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
