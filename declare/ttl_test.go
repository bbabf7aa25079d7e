package declare

import (
	"strings"
	"testing"
	"time"
)

func TestTTL(t *testing.T) {
	for text, want := range map[string]struct {
		ttl     time.Duration
		mistake string
	}{
		"":         {0, ""},
		"2h":       {2 * time.Hour, ""},
		"2h30m":    {150 * time.Minute, ""},
		"150m":     {150 * time.Minute, ""},
		"8760h":    {365 * 24 * time.Hour, ""},
		"119m":     {119 * time.Minute, "shorter than 2h"},
		"0s":       {0, "shorter than 2h"},
		"-6h":      {0, "shorter than 2h"},
		"8760h1m":  {8761*time.Hour - 59*time.Minute, "longer than 8760h"},
		"2h1s":     {2*time.Hour + time.Second, "whole minutes"},
		"1d":       {0, "is not a time"},
		"soon":     {0, "is not a time"},
		"9999999h": {0, "is not a time"}, // more than a duration can be
	} {
		r := Resource{Name: "f", File: &File{Path: "/f"}, TTL: text}
		if got := r.TimeToLive(); got != want.ttl {
			t.Errorf("%q is %s, want %s", text, got, want.ttl)
		}
		message, hint := TTLMistake(text)
		if (message == "") != (want.mistake == "") || !strings.Contains(message, want.mistake) || (message == "") != (hint == "") {
			t.Errorf("%q: %q, %q; want %q", text, message, hint, want.mistake)
		}
	}
}

// TestValidateTTL: each resource may have one, data too, and a mistake is told at its place.
func TestValidateTTL(t *testing.T) {
	file, data := Resource{Name: "f", File: &File{Path: "/f"}, TTL: "6h"}, Resource{Name: "d", Data: &Data{Key: "k"}, TTL: "2h"}
	if got := summary(Validate(config(file, data))); got != "" {
		t.Error(got)
	}
	file.TTL, data.TTL = "1h", "6"
	if got := summary(Validate(config(file, data))); got != "TK0414 spec.resources[0].ttl, TK0414 spec.resources[1].ttl" {
		t.Error(got)
	}
}
