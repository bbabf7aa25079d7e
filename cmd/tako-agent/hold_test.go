package main

import (
	"testing"
	"time"

	"tako.dev/tako/internal/reason"
)

func TestHoldEnd(t *testing.T) {
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		until string
		lasts time.Duration
		want  string // empty where it is refused
		code  reason.Code
	}{
		{"", time.Hour, "2026-11-22T13:00:00Z", 0},
		{"", 0, "", reason.HoldInvalid},
		{"", -time.Hour, "", reason.HoldInvalid},
		{"18:00", 0, "2026-11-22T18:00:00Z", 0},
		{"11:59", 0, "2026-11-23T11:59:00Z", 0},
		{"12:00", 0, "2026-11-23T12:00:00Z", 0},
		{"2026-12-27", 0, "2026-12-27T00:00:00Z", 0},
		{"2026-12-27 08:00", 0, "2026-12-27T08:00:00Z", 0},
		{"2026-12-27T08:00:00+01:00", 0, "2026-12-27T07:00:00Z", 0},
		{"tomorrow", 0, "", reason.Usage},
		{"24:00", 0, "", reason.Usage},
	} {
		end, err := holdEnd(c.until, c.lasts, now)
		if got := end.UTC().Format(time.RFC3339); c.want == "" && !reason.Is(err, c.code) || c.want != "" && (err != nil || got != c.want) {
			t.Errorf("%q, %v: %s, %v; want %s", c.until, c.lasts, got, err, c.want)
		}
	}
}
