package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/agent"
	"tako.dev/tako/internal/agent/store"
	"tako.dev/tako/internal/reason"
)

// written is what a program reads of a report.
func written(t *testing.T, r *report, verdict error) map[string]any {
	t.Helper()
	var b bytes.Buffer
	if err := r.end(&b, verdict); (err == nil) != (verdict == nil) {
		t.Fatalf("a run that ended with %v ends with %v", verdict, err)
	}
	if strings.Count(b.String(), "\n") != 1 {
		t.Errorf("it is no line:\n%s", b.String())
	}
	var doc map[string]any
	if err := json.Unmarshal(b.Bytes(), &doc); err != nil {
		t.Fatal(err)
	}
	return doc
}

// A plan says of each resource what would be done, with the difference where that may be shown.
func TestPlanReport(t *testing.T) {
	f := &convergeFlags{common: &common{root: "/"}, diff: true}
	denied := &reason.Error{Code: reason.DiskFull, Doing: "write /etc/a", Hint: "free space"}
	claim := declare.Claim{Kind: declare.ClaimPath, ID: "/etc/a"}
	for _, c := range []struct {
		name    string
		planned agent.Planned
		would   string
		exit    float64
	}{
		{"kept", agent.Planned{Claim: claim}, "keep", 0},
		{"changed", agent.Planned{Claim: claim, Changes: []agent.Change{{Field: "content", From: "1 B", To: "2 B", Text: &agent.Text{From: []byte("a\n"), To: []byte("b\n")}}}}, "change", 1},
		{"private", agent.Planned{Claim: claim, Changes: []agent.Change{{Field: "content", From: "1 B", To: "2 B"}}}, "change", 1},
		{"notified", agent.Planned{Claim: claim, Unknown: "cannot say", Changes: []agent.Change{{Field: "notified", To: "by file/b"}}}, "change", 1},
		{"not known", agent.Planned{Claim: claim, Unknown: "cannot say"}, "unknown", 1},
		{"not here", agent.Planned{Claim: claim, When: "1 == 2"}, "skip", 0},
		{"failing", agent.Planned{Claim: claim, Err: denied}, "fail", 2},
		{"silent", agent.Planned{Claim: claim, Err: &reason.Error{Code: reason.EndpointSilent, Doing: "ask"}}, "wait", 1},
	} {
		r := f.begin(modePlan, "web-1")
		r.plan([]agent.Planned{c.planned})
		doc := written(t, r, f.verdict(r.differs(), r.Counts[wouldFail]))
		one := doc["resources"].([]any)[0].(map[string]any)
		if one["would"] != c.would || doc["exit"] != c.exit || doc["ok"] != (c.exit == 0) || doc["counts"].(map[string]any)[c.would] != 1.0 {
			t.Errorf("%s: %v", c.name, doc)
		}
		text, err := json.Marshal(one["changes"])
		if err != nil {
			t.Fatal(err)
		}
		if has := strings.Contains(string(text), `@@ -1 +1 @@\n-a\n+b\n`); has != (c.name == "changed") {
			t.Errorf("%s: the changes are %s", c.name, text)
		}
		if c.planned.Err != nil && one["problem"].(map[string]any)["code"] != c.planned.Err.Code.String() {
			t.Errorf("%s: the problem is %v", c.name, one["problem"])
		}
	}
}

// A dry run fails only where converging would.
func TestVerdictOfPreviews(t *testing.T) {
	for _, c := range []struct {
		diff              bool
		changes, failures int
		want              reason.Exit
	}{{false, 0, 0, 0}, {false, 1, 0, 0}, {false, 1, 1, 1}, {true, 0, 0, 0}, {true, 1, 0, 1}, {true, 0, 1, 2}, {true, 1, 1, 2}} {
		f := &convergeFlags{diff: c.diff}
		if got := exitCode(f.verdict(c.changes, c.failures)); got != c.want {
			t.Errorf("%+v: exit %d", c, got)
		}
	}
}

// A run's report has all resources as they are in the end, each with what was changed last, and says why nothing was begun.
func TestConvergeReport(t *testing.T) {
	f := &convergeFlags{common: &common{root: "/"}}
	c := &recorder{report: f.begin(modeConverge, "web-1"), last: map[string]agent.Line{}}
	a := agent.Resource{Title: "file/a", Claim: "path:/a", Outcome: reason.Repaired, Detail: reason.Change}
	c.line(agent.Line{Resource: a, Changes: []string{"mode 0600 -> 0644"}, Took: 1500 * time.Microsecond, Cause: "declaration"})
	a.Outcome, a.Detail = reason.Kept, ""
	c.line(agent.Line{Resource: a, Took: time.Microsecond, Cause: "event"})
	for range warningsMax + 1 {
		c.line(agent.Line{Trouble: &agent.Problem{Code: reason.WatchOverflow, Message: "m"}})
	}
	off := agent.Resource{Title: "file/off", Claim: "path:/off", Outcome: reason.NotApplicable, When: "1 == 2"}
	c.end(&agent.Report{Node: "web-1", Converged: true, Counts: map[reason.Outcome]int{reason.Kept: 1, reason.NotApplicable: 1}, Resources: []agent.Resource{a, off}})
	doc := written(t, c.report, nil)
	text, err := json.Marshal(doc["resources"])
	if err != nil {
		t.Fatal(err)
	}
	// That it was found in order after it had been repaired takes nothing from that.
	const want = `[{"cause":"declaration","changes":[{"text":"mode 0600 -\u003e 0644"}],"claim":"path:/a","detail":"change","outcome":"repaired","title":"file/a","tookMicroseconds":1500},` +
		`{"claim":"path:/off","outcome":"notApplicable","title":"file/off","when":"1 == 2"}]`
	if string(text) != want || doc["ok"] != true || doc["exit"] != 0.0 || len(doc["warnings"].([]any)) != warningsMax {
		t.Errorf("it is %v\n%s\nwant\n%s", doc["counts"], text, want)
	}
	faults := declare.Faults{{Code: reason.UnknownField, File: "a.yaml", Line: 3, Column: 1, Message: "unknown field", Hint: "write b"}}
	doc = written(t, f.begin(modeConverge, "web-1"), faults)
	refused := doc["refused"].([]any)[0].(map[string]any)
	if doc["exit"] != 2.0 || refused["message"] != "a.yaml:3:1: unknown field" || refused["hint"] != "write b" || len(doc["resources"].([]any)) != 0 {
		t.Errorf("of bad declarations it says %v", doc)
	}
}

// A stream tells of each thing as it happens, and keeps none of it.
func TestStream(t *testing.T) {
	var b bytes.Buffer
	f := &convergeFlags{common: &common{root: "/"}}
	c := &recorder{report: f.begin(modeConverge, "web-1"), last: map[string]agent.Line{}, stream: json.NewEncoder(&b)}
	c.line(agent.Line{At: time.Unix(0, 0).UTC(), Resource: agent.Resource{Title: "file/a", Claim: "path:/a"}})
	c.line(agent.Line{Trouble: &agent.Problem{Code: reason.WatchOverflow, Message: "m"}})
	c.end(&agent.Report{Node: "web-1", Converged: true})
	if err := c.finish(nil); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(b.String()), "\n")
	if len(lines) != 3 || !strings.HasPrefix(lines[0], `{"resource":{"at":"1970-01-01T00:00:00Z","title":"file/a"`) || !strings.HasPrefix(lines[1], `{"warning":{"code":"`+reason.WatchOverflow.String()) ||
		!strings.HasPrefix(lines[2], `{"report":{"version":1,`) || len(c.last) != 0 || len(c.report.Warnings) != 0 {
		t.Errorf("it tells\n%s", b.String())
	}
}

// Forms that there are not are refused with the one to write.
func TestOutputs(t *testing.T) {
	for _, c := range []struct {
		f    convergeFlags
		hint string // empty where it is fine
	}{
		{convergeFlags{}, ""}, {convergeFlags{output: "json"}, ""}, {convergeFlags{output: "ndjson", watch: true}, ""}, {convergeFlags{output: "json", diff: true}, ""},
		{convergeFlags{output: "json", watch: true}, "ndjson"}, {convergeFlags{output: "ndjson", dryRun: true}, "write json"}, {convergeFlags{output: "yaml"}, "json or ndjson"},
	} {
		err := c.f.checkOutput()
		if c.hint == "" && err != nil || c.hint != "" && (!reason.Is(err, reason.Usage) || !strings.Contains(reason.Of(err).Hint, c.hint)) {
			t.Errorf("%+v: %v", c.f, err)
		}
	}
}

// A happening says what was done, how long it took, and why.
func TestHappeningText(t *testing.T) {
	h := &store.Happening{Outcome: "repaired", Detail: "drift", Title: "file/a", Changes: []string{"mode 0600 -> 0644"}, Writer: "uid 7", Cause: "event", Took: 1503}
	if got := happeningText(h); !strings.HasSuffix(got, "file/a: mode 0600 -> 0644; changed by uid 7  (1.5ms, cause: event)") {
		t.Errorf("it says %s", got)
	}
	for text, ok := range map[string]bool{"": true, "10m": true, "2026-01-02T15:04:05Z": true, "yesterday": false, "-1m": false, "0s": false} {
		if _, err := moment("--since", text, time.Now()); (err == nil) != ok {
			t.Errorf("%q: %v", text, err)
		}
	}
}
