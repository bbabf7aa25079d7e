package trust

import (
	"runtime/debug"
	"time"
)

// Built is when the source of this program was committed, where the build has noted it, and the zero time where not: no clock that says
// less is believed. It is for NewChain and Verify.
func Built() time.Time {
	noted, ok := debug.ReadBuildInfo()
	if !ok {
		return time.Time{}
	}
	return builtOf(noted.Settings)
}

func builtOf(settings []debug.BuildSetting) time.Time {
	for _, s := range settings {
		if s.Key != "vcs.time" {
			continue
		}
		if at, err := time.Parse(time.RFC3339, s.Value); err == nil {
			return at
		}
	}
	return time.Time{}
}
