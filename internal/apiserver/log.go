package apiserver

import (
	"context"
	"log/slog"
	"slices"
	"strings"

	"k8s.io/klog/v2"
)

// mistakes are beginnings of what the library logs as its own error, and is a client's doing: it has been told, or is gone.
func mistakes() []string {
	return []string{"Couldn't parse request", "Timeout or abort while handling"}
}

// causes are parts of errors of which that is true.
func causes() []string {
	return []string{
		"http2: stream closed", "client disconnected", "connection reset by peer", "broken pipe", // who asked does not listen any more
		"failed to create typed patch object", // tried only, of a kind that others define: see package misfit
	}
}

// captureLibrary sends what the library logs to the server's log, from warnings on: it tells more about itself than anybody
// wants to know. The library's logger belongs to the process.
func captureLibrary(log *slog.Logger) {
	klog.SetSlogLogger(slog.New(warnings{log.Handler()}))
}

// parting is a log for parts that complain when a server stops that the others are going: that is for who debugs.
func parting(log *slog.Logger, stopping <-chan struct{}) *slog.Logger {
	return slog.New(partings{log.Handler(), stopping})
}

type partings struct {
	slog.Handler
	stopping <-chan struct{}
}

// Handle logs.
func (p partings) Handle(ctx context.Context, r slog.Record) error {
	select {
	case <-p.stopping:
		if r.Level >= slog.LevelWarn {
			return debug(ctx, p.Handler, r)
		}
	default:
	}
	return p.Handler.Handle(ctx, r)
}

// WithAttrs adds attributes.
func (p partings) WithAttrs(attrs []slog.Attr) slog.Handler {
	return partings{p.Handler.WithAttrs(attrs), p.stopping}
}

// WithGroup begins a group.
func (p partings) WithGroup(name string) slog.Handler {
	return partings{p.Handler.WithGroup(name), p.stopping}
}

// debug logs a record for who debugs.
func debug(ctx context.Context, to slog.Handler, r slog.Record) error {
	if !to.Enabled(ctx, slog.LevelDebug) {
		return nil
	}
	r = r.Clone()
	r.Level = slog.LevelDebug
	return to.Handle(ctx, r)
}

// warnings is a handler that lets warnings and errors through.
type warnings struct{ slog.Handler }

// Enabled is false below a warning.
func (w warnings) Enabled(ctx context.Context, l slog.Level) bool {
	return l >= slog.LevelWarn && w.Handler.Enabled(ctx, l)
}

// Handle logs; what clients cause is for who debugs.
func (w warnings) Handle(ctx context.Context, r slog.Record) error {
	if byClient(&r) {
		return debug(ctx, w.Handler, r)
	}
	return w.Handler.Handle(ctx, r)
}

func byClient(r *slog.Record) bool {
	if slices.ContainsFunc(mistakes(), func(m string) bool { return strings.HasPrefix(r.Message, m) }) {
		return true
	}
	is := false
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "err" {
			text := a.Value.String()
			is = slices.ContainsFunc(causes(), func(c string) bool { return strings.Contains(text, c) })
		}
		return !is
	})
	return is
}

// WithAttrs adds attributes.
func (w warnings) WithAttrs(attrs []slog.Attr) slog.Handler {
	return warnings{w.Handler.WithAttrs(attrs)}
}

// WithGroup begins a group.
func (w warnings) WithGroup(name string) slog.Handler { return warnings{w.Handler.WithGroup(name)} }
