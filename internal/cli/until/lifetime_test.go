package until

import (
	"testing"
	"time"
)

func TestLifetime(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"1h": time.Hour, "30d": 720 * time.Hour, "1d12h": 36 * time.Hour, "90m": 90 * time.Minute, "never": 0,
	} {
		var l Lifetime
		if err := l.Set(text); err != nil || l.Duration != want {
			t.Errorf("%q is %s (%v), want %s", text, l.Duration, err, want)
		}
		var back Lifetime
		if err := back.Set(l.String()); err != nil || back != l {
			t.Errorf("%q is written as %q, which is %s (%v)", text, l.String(), back.Duration, err)
		}
	}
	for _, text := range []string{"", "0", "0s", "0d", "-1h", "-1s", "10ms", "1", "1y", "d", "99999999999999999999d", "40000d", "1d-48h", "Never"} {
		l := Lifetime{time.Hour}
		if err := l.Set(text); err == nil || l.Duration != time.Hour {
			t.Errorf("%q was read as %s", text, l.Duration)
		}
	}
}
