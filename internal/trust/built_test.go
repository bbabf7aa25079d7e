package trust

import (
	"runtime/debug"
	"testing"
	"time"
)

func TestBuilt(t *testing.T) {
	if at := Built(); at.After(time.Now()) {
		t.Errorf("this test was built at %s", at)
	}
	for value, want := range map[string]time.Time{
		"2030-01-02T03:04:05Z": time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC),
		"":                     {},
		"yesterday":            {},
	} {
		settings := []debug.BuildSetting{{Key: "vcs", Value: "git"}, {Key: "vcs.time", Value: value}}
		if at := builtOf(settings); !at.Equal(want) {
			t.Errorf("noted %q: %s", value, at)
		}
	}
	if at := builtOf(nil); !at.IsZero() {
		t.Errorf("without a note: %s", at)
	}
}
