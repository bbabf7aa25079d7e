package apiserver

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
)

// TestLogOfTheLibrary: its warnings and errors are told, unless a client caused them, or the server is being stopped.
func TestLogOfTheLibrary(t *testing.T) {
	gone := errors.New("http2: stream closed")
	for _, c := range []struct {
		what     string
		level    slog.Level
		message  string
		err      error
		stopping bool
		want     string // level that it is told with to who debugs
		plainly  bool   // it is told to everybody
	}{
		{"an error", slog.LevelError, "Failed to watch", errors.New("no answer"), false, "level=ERROR", true},
		{"a warning", slog.LevelWarn, "slow", nil, false, "level=WARN", true},
		{"what it does", slog.LevelInfo, "starting", nil, false, "", false},
		{"nobody listens any more", slog.LevelError, "Failed to encode watch event", gone, false, "level=DEBUG", false},
		{"a question that cannot be read", slog.LevelError, "Couldn't parse request", errors.New("unable to parse requirement"), false, "level=DEBUG", false},
		{"an object of another form", slog.LevelError, "Unhandled Error", errors.New("apiserver received an error that is not an metav1.Status: failed to create typed patch object (a)"), false, "level=DEBUG", false},
		{"an error, when it stops", slog.LevelError, "Failed to watch", errors.New("context canceled"), true, "level=DEBUG", false},
		{"a warning, when it stops", slog.LevelWarn, "slow", nil, true, "level=DEBUG", false},
		{"what it does, when it stops", slog.LevelInfo, "starting", nil, true, "", false},
	} {
		for _, least := range []slog.Level{slog.LevelInfo, slog.LevelDebug} {
			var out bytes.Buffer
			stopping := make(chan struct{})
			log := parting(slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: least})), stopping)
			library := slog.New(warnings{log.Handler()}).With("logger", "x").WithGroup("g")
			if c.stopping {
				close(stopping)
			}
			args := []any{}
			if c.err != nil {
				args = append(args, "err", c.err)
			}
			library.Log(t.Context(), c.level, c.message, args...)
			want := c.want
			if !c.plainly && least > slog.LevelDebug {
				want = ""
			}
			if (out.Len() > 0) != (want != "") || !strings.Contains(out.String(), want) {
				t.Errorf("%s, from %v on: %q, want %q", c.what, least, out.String(), want)
			}
		}
	}
}

// TestLogOfAStop: what the parts do until the end is told as ever.
func TestLogOfAStop(t *testing.T) {
	var out bytes.Buffer
	stopping := make(chan struct{})
	close(stopping)
	log := parting(slog.New(slog.NewTextHandler(&out, nil)), stopping).With("component", "gc")
	log.Error("failed")
	log.Info("done")
	if !strings.Contains(out.String(), "level=INFO msg=done component=gc") || strings.Count(out.String(), "\n") != 1 {
		t.Error(out.String())
	}
}
