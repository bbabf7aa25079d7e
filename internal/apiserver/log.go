package apiserver

import (
	"context"
	"log/slog"

	"k8s.io/klog/v2"
)

// captureLibrary sends what the library logs to the server's log, from warnings on: it tells more about itself than anybody
// wants to know. The library's logger belongs to the process.
func captureLibrary(log *slog.Logger) {
	klog.SetSlogLogger(slog.New(warnings{log.Handler()}))
}

// warnings is a handler that lets warnings and errors through.
type warnings struct{ slog.Handler }

// Enabled is false below a warning.
func (w warnings) Enabled(ctx context.Context, l slog.Level) bool {
	return l >= slog.LevelWarn && w.Handler.Enabled(ctx, l)
}

// WithAttrs adds attributes.
func (w warnings) WithAttrs(attrs []slog.Attr) slog.Handler {
	return warnings{w.Handler.WithAttrs(attrs)}
}

// WithGroup begins a group.
func (w warnings) WithGroup(name string) slog.Handler { return warnings{w.Handler.WithGroup(name)} }
