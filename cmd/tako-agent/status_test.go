package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"tako.dev/tako/internal/agent"
	"tako.dev/tako/internal/reason"
)

// The connection is told as it is now, and not as an agent has left it; and why there is none.
func TestConnectionText(t *testing.T) {
	now := time.Date(2030, 1, 1, 0, 1, 0, 0, time.UTC)
	since := now.Add(-time.Minute)
	link := clusterOf(t, map[string]any{"servers": []string{"s:6444"}, "connected": true, "connectedSince": since})
	gone := clusterOf(t, map[string]any{"servers": []string{"s:6444"}, "connectedSince": since,
		"trouble": map[string]any{"code": reason.IdentityGone, "message": "the node was deleted", "hint": "join it again", "since": since}})
	stale := map[string]any{"servers": []string{"s:6444"}, "connected": true, "connectedSince": since, "stale": true, "expires": since}
	ahead := clusterOf(t, stale)
	stale["connected"] = false
	alone := clusterOf(t, stale)
	for _, c := range []struct {
		name    string
		link    *agent.Cluster
		running bool
		want    []string
		not     string
	}{
		{"connected", link, true, []string{"s:6444  connected since 1m ago"}, "TK"},
		{"stale", alone, true, []string{"stale since 1m ago, the last good state is enforced"}, "clock"},
		{"stale, and connected", ahead, true, []string{"stale since 1m ago, the last good state is enforced; a server is heard all the same: is the clock of this host ahead?"}, ""},
		{"stale, no agent", ahead, false, []string{"stale since 1m ago"}, "clock"},
		{"no agent", link, false, []string{"s:6444  not connected, because no agent runs"}, "since"},
		{"refused", gone, true, []string{"not connected since 1m ago\n    TK1031: the node was deleted\n    help: join it again\n"}, ""},
		{"refused, no agent", gone, false, []string{"not connected, because no agent runs"}, "TK1031"},
	} {
		text := clusterText(c.link, c.running, now)
		for _, want := range c.want {
			if !strings.Contains(text, want) {
				t.Errorf("%s: %q lacks %q", c.name, text, want)
			}
		}
		if c.not != "" && strings.Contains(text, c.not) {
			t.Errorf("%s: %q has %q", c.name, text, c.not)
		}
	}
}

// What keeps everything new from a host is said, with what stays, and is an exit code; what will soon be over is not.
func TestCutOff(t *testing.T) {
	now := time.Date(2030, 1, 1, 0, 1, 0, 0, time.UTC)
	away := func(d time.Duration, code reason.Code) *agent.Cluster {
		at := now.Add(-d)
		return clusterOf(t, map[string]any{"connectedSince": at, "trouble": map[string]any{"code": code, "message": "m", "since": at}})
	}
	for _, c := range []struct {
		name    string
		cluster *agent.Cluster
		running bool
		exit    reason.Exit // 0: that of a host that is converged
	}{
		{"alone", nil, true, 0},
		{"connected", clusterOf(t, map[string]any{"connected": true}), true, 0},
		{"not tried yet", clusterOf(t, map[string]any{"connectedSince": now.Add(-time.Hour)}), true, 0},
		{"a moment", away(time.Minute, reason.ServerUnreachable), true, 0},
		{"long", away(time.Hour, reason.ServerUnreachable), true, reason.ExitUnreachable},
		{"long busy", away(time.Hour, reason.TransferBusy), true, reason.ExitUnreachable},
		{"deleted a moment ago", away(time.Second, reason.IdentityGone), true, reason.ExitNotAllowed},
		{"deleted, and no agent that would know", away(time.Second, reason.IdentityGone), false, 0},
	} {
		why, _ := cutOff(c.cluster, c.running, now)
		if c.cluster != nil {
			text := clusterText(c.cluster, c.running, now)
			if said := strings.Contains(text, "Cut off since") && strings.Contains(text, "stays enforced"); said != (c.exit != 0) {
				t.Errorf("%s: %q", c.name, text)
			}
		}
		if got := exitOf(&agent.Report{Converged: true, Cluster: c.cluster}, why); got != c.exit {
			t.Errorf("%s: exit %d, want %d", c.name, got, c.exit)
		}
		if got := exitOf(&agent.Report{Cluster: c.cluster}, why); got != reason.ExitFailed {
			t.Errorf("%s, and not converged: exit %d", c.name, got)
		}
	}
}

// TestExpiredText: what has expired is on one line, with how much, what first, and when the servers were heard.
func TestExpiredText(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	e := agent.Expired{Count: 3, First: "file/a", Config: "NodeConfig/web", TTL: "6h0m0s", Since: now.Add(-time.Hour), Heard: now.Add(-7 * time.Hour)}
	text := clusterText(&agent.Cluster{Expired: &e}, true, now)
	for _, want := range []string{"Expired  3 resources", "file/a of NodeConfig/web first", "1h", "2026-03-01T05:00:00Z", "6h0m0s"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in %q", want, text)
		}
	}
	e.Count = 1
	if text := clusterText(&agent.Cluster{Expired: &e}, true, now); !strings.Contains(text, "Expired  1 resource, ") {
		t.Errorf("%q", text)
	}
	if text := clusterText(&agent.Cluster{}, true, now); strings.Contains(text, "Expired") {
		t.Errorf("nothing has expired: %q", text)
	}
}

// A state directory that cannot be written needs a person, however well the host is kept.
func TestExitOfFullDisk(t *testing.T) {
	for code, want := range map[reason.Code]reason.Exit{reason.StateUnwritable: reason.ExitFailed, reason.WatchOverflow: reason.ExitOK} {
		if got := exitOf(&agent.Report{Converged: true, Degraded: []agent.Problem{{Code: code}}}, 0); got != want {
			t.Errorf("%s: exit %d, want %d", code, got, want)
		}
	}
}

// clusterOf is what an agent has written.
func clusterOf(t *testing.T, fields map[string]any) *agent.Cluster {
	t.Helper()
	text, err := json.Marshal(fields)
	c := &agent.Cluster{}
	if err == nil {
		err = json.Unmarshal(text, c)
	}
	if err != nil {
		t.Fatal(err)
	}
	return c
}
