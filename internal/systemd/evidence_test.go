package systemd

import (
	"fmt"
	"testing"
	"time"
)

func TestMessagesSince(t *testing.T) {
	begin := time.UnixMicro(1_700_000_000_500_000)
	entry := func(after time.Duration, message string) string {
		return fmt.Sprintf(`{"__REALTIME_TIMESTAMP":"%d","MESSAGE":%s}`+"\n", begin.Add(after).UnixMicro(), message)
	}
	in := entry(time.Hour, `"two\nlines"`) + "no entry\n" + entry(time.Second, `[27,255]`) + entry(time.Second, `null`) + entry(time.Second, `[300]`) +
		`{"MESSAGE":"without a time"}` + "\n" + entry(0, `"first"`) + entry(-time.Microsecond, `"of the attempt before, in the same second"`) +
		`{"__REALTIME_TIMESTAMP":"18000000000`
	if got, want := string(messagesSince([]byte(in), begin)), "first\n\x1b\xff\ntwo\nlines\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
