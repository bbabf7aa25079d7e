package unit

import (
	"strings"
	"testing"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/systemd"
)

func TestTexts(t *testing.T) {
	no := false
	full := &declare.Timer{Calendar: []string{"Mon..Fri 02:00", "*-*-01 04:00 UTC"}, Command: []string{"/usr/bin/backup", "--to=/srv/$HOST 100%", "a\nb\x01\"\\"}, User: "backup", Directory: "/srv/50%",
		Environment: map[string]string{"B": "x y", "A": "$1"}, Jitter: "15m", CatchUp: &no, Timeout: "1h30m"}
	if got, want := timerText(full, "backup"), madeBy+`[Unit]
Description=Timer backup of tako

[Timer]
OnCalendar=Mon..Fri 02:00
OnCalendar=*-*-01 04:00 UTC
AccuracySec=1s
RandomizedDelaySec=900s
Persistent=false
Unit=backup.service

[Install]
WantedBy=timers.target
`; got != want {
		t.Errorf("timer: got\n%s\nwant\n%s", got, want)
	}
	if got, want := serviceText(full, "backup"), madeBy+`[Unit]
Description=Command of timer backup of tako

[Service]
Type=oneshot
User=backup
WorkingDirectory=/srv/50%%
Environment="A=$1"
Environment="B=x y"
TimeoutStartSec=5400s
ExecStart="@/usr/bin/backup" "/usr/bin/backup" "--to=/srv/$$HOST 100%%" "a\x0ab\x01\"\\"
`; got != want {
		t.Errorf("service: got\n%s\nwant\n%s", got, want)
	}
	other := timerText(&declare.Timer{Calendar: []string{"daily"}, Unit: "other.service"}, "x")
	if !strings.Contains(other, "\nUnit=other.service\n") || !strings.Contains(other, "\nPersistent=true\n") || strings.Contains(other, "Randomized") {
		t.Errorf("of a unit:\n%s", other)
	}
}

func TestCompareState(t *testing.T) {
	for _, row := range []struct {
		active, file string
		want         string
	}{
		{"active", "enabled", ""}, {"inactive", "enabled", "state stopped started"}, {"failed", "", "enabled disabled enabled, state failed started"}, {"active", "masked-runtime", "enabled masked-runtime enabled"},
	} {
		var got []string
		for _, c := range compareState(systemd.UnitState{ActiveState: row.active, UnitFileState: row.file}) {
			got = append(got, c.Field+" "+c.From+" "+c.To)
		}
		if strings.Join(got, ", ") != row.want {
			t.Errorf("%s, %s: got %q, want %q", row.active, row.file, got, row.want)
		}
	}
}
