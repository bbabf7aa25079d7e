package apt

import (
	"encoding/json"
	"testing"
	"time"

	boots "tako.dev/tako/e2e/host"
	"tako.dev/tako/internal/casetest"
)

const wishes = `apiVersion: tako.dev/v1alpha1
kind: NodeConfig
metadata: {name: packages}
spec:
  resources:
    - name: gone
      package: {state: absent}
    - name: clean
      package: {state: purged}
    - name: stays
      package: {hold: true}
    - name: fresh
      package: {state: latest, version: ">=1 <3"}
    - name: late
      package: {}
`

const (
	// eventTime bounds how long something takes that begins with an event: an apt-get or two on a busy machine.
	eventTime = time.Minute
	// farOff is when the next attempt is due that no event asks for, so that what comes before it comes of an event.
	farOff = 8 * time.Second
)

// TestAgentCase23_OnHost has an agent notice by events what people do with packages by hand, and that new lists are there.
func TestAgentCase23_OnHost(t *testing.T) {
	c := casetest.Start(t)
	lab := boots.NewLab(t)
	h := hostOf(t, lab, simple("gone", "1.0"), configured("clean", "1.0"), simple("stays", "1.0"), simple("fresh", "1.0"))
	h.CopyIn(t, boots.AgentBinary(t), "/usr/bin/tako-agent")
	h.Put(t, "/root/packages.yaml", wishes, 0o600)
	h.Put(t, "/etc/apt/apt.conf.d/wait", "DPkg::Lock::Timeout \"60\";\n", 0o644) // people wait for the agent
	agent := h.Start(t, "tako-agent", "converge", "-f", "/root/packages.yaml", "--watch")
	until := func(what string, want map[string]string) {
		t.Helper()
		boots.Eventually(t, eventTime, what, func() (string, bool) {
			now, ok := map[string]string{}, true
			for name, v := range want {
				now[name] = version(t, h, name)
				ok = ok && now[name] == v
			}
			b, err := json.Marshal(now)
			c.NoError(err, "marshal")
			return string(b) + "\n" + agent.Stderr(), ok
		})
		c.Check(true, "%s", what)
	}
	all := map[string]string{"gone": "", "clean": "", "stays": "1.0", "fresh": "1.0", "late": ""}
	until("the packages are as declared", all)
	for _, byHand := range []string{
		"apt-get install -y gone clean", "apt-get remove -y --allow-change-held-packages stays", "apt-get remove -y fresh", "until dpkg --purge --force-hold stays; do sleep 0.2; done", "apt-get install -y clean && apt-get remove -y clean",
	} {
		h.MustRun(t, "sh", "-ec", byHand)
		until(byHand+" is undone", all)
	}
	boots.Eventually(t, eventTime, "what was purged has left nothing", func() (string, bool) {
		r, err := h.Run(t.Context(), "sh", "-c", "dpkg-query --show --showformat='${Status}' clean; ls /etc/clean.conf")
		return r.Stdout + r.Stderr, err == nil && r.Stdout == ""
	})
	h.MustRun(t, "apt-mark", "unhold", "stays")
	boots.Eventually(t, eventTime, "the mark is back", func() (string, bool) {
		held := h.MustRun(t, "apt-mark", "showhold")
		return held, held == "stays\n"
	})

	// Nothing but new lists can help the one that is late, and it is not asked for them in vain.
	lab.Repository().Add(t, simple("late", "1.0"))
	lab.Repository().Add(t, simple("fresh", "2.0"))
	lab.Repository().Add(t, simple("fresh", "3.0"))
	due := awaitFarOff(t, h, "package/late")
	h.MustRun(t, "apt-get", "update")
	all["late"], all["fresh"] = "1.0", "2.0"
	until("new lists are noticed", all)
	c.Check(time.Now().Before(due), "that was the attempt that was due at %v", due)
	agent.Kill(t)
	agent.Wait(t, time.Minute)
}

// awaitFarOff waits until the next attempt at a resource is due in a long time, and returns when.
func awaitFarOff(t *testing.T, h *boots.Host, title string) time.Time {
	t.Helper()
	var due time.Time
	boots.Eventually(t, 2*time.Minute, title+" waits for long", func() (string, bool) {
		r, err := h.Run(t.Context(), "tako-agent", "status", "--json", "--all")
		if err != nil {
			t.Fatal(err)
		}
		var report struct {
			Resources []struct {
				Title   string    `json:"title"`
				RetryAt time.Time `json:"retryAt"`
			} `json:"resources"`
		}
		if err := json.Unmarshal([]byte(r.Stdout), &report); err != nil {
			return r.Stdout + r.Stderr, false
		}
		for _, res := range report.Resources {
			if res.Title == title {
				due = res.RetryAt
			}
		}
		return r.Stdout, time.Until(due) > farOff
	})
	return due
}
