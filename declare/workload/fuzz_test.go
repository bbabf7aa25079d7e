package workload

import (
	"encoding/json"
	"testing"

	"tako.dev/tako/internal/reason"
)

// FuzzRead: whatever stands in a file, each mistake has a code, a place and words, and what is taken has no default out of its bounds, is
// equal to itself, and comes back from JSON as it was.
func FuzzRead(f *testing.F) {
	f.Add([]byte(whole))
	for _, fields := range []string{task, "mode: Job, schedule: {cron: \"*/5 * * * *\"}, " + task, "rollout: {maxSurge: 0, maxUnavailable: 0}, " + task,
		"template: {tasks: [{name: a, command: [/a], env: [{name: A, value: $(B)}], resources: {limits: {cpu: 1e99}}}]}", "scale: {max: 1}", "template: {tasks: [{}, null]}", "template: 3"} {
		f.Add([]byte(spec(fields)))
	}
	f.Add([]byte("00"))
	f.Add([]byte("---\nspec: {}\n---\n*a"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 1<<15 {
			t.Skip("too long to be quick")
		}
		d, document, faults := Read("f", data)
		for _, x := range faults {
			if _, known := reason.Lookup(x.Code); !known || x.Line < 1 || x.Column < 1 || x.Message == "" {
				t.Errorf("fault without a place or a code: %+v", x)
			}
		}
		if len(faults) > 0 || document == nil {
			return
		}
		checkBounds(t, &d.Spec)
		if c := Compare(&d.Spec, &d.Spec); c.Effect != Nothing || c.Moves {
			t.Errorf("it differs from itself: %+v", c)
		}
		text, err := json.Marshal(d)
		if err != nil {
			t.Fatal(err)
		}
		var again Declaration
		if err := json.Unmarshal(text, &again); err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		if Hash(&again.Spec.Template, 0) != Hash(&d.Spec.Template, 0) {
			t.Errorf("it is another revision when it was stored:\n%s", text)
		}
		if faults := Validate(again.Metadata.Name, again.Metadata.Namespace, &again.Spec); len(faults) > 0 {
			t.Errorf("it is refused when it was stored: %v", faults)
		}
	})
}

// FuzzValidate: what JSON makes of a spec can be looked at, whatever it is.
func FuzzValidate(f *testing.F) {
	f.Add([]byte(`{"template": {"tasks": [{"name": "a", "command": [""], "ports": [{"name": "p", "text": {"": ""}}], "readiness": {"http": {"port": "p", "path": "%"}}}]}}`))
	f.Add([]byte(`{"mode": "Job", "job": {}, "rollout": {"strategy": "Canary", "steps": [{"replicas": "%"}]}, "scale": {"targets": [{"prometheus": {"server": "://"}}]}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var s Spec
		if len(data) > 1<<15 || json.Unmarshal(data, &s) != nil {
			t.Skip("no spec")
		}
		if len(Validate("w", "", &s)) == 0 {
			checkBounds(t, &s)
		}
		_ = Compare(&s, &Spec{})
	})
}
