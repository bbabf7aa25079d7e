package report

import (
	"fmt"
	"slices"
	"testing"

	"tako.dev/tako/internal/converge"
	"tako.dev/tako/internal/host"
)

// TestEveryCauseHasAName: a cause that is added to the engine must not end the agent.
func TestEveryCauseHasAName(t *testing.T) {
	for c := range converge.CauseDesired + 1 {
		if CauseName(c) == "" {
			t.Errorf("cause %d has no name", c)
		}
	}
}

func TestChangesAreBounded(t *testing.T) {
	var list []host.Change
	for i := range changesMax + 3 {
		list = append(list, host.Change{Field: "mode", From: fmt.Sprint(i), To: "0644"})
	}
	got := Changes(list)
	if len(got) != changesMax+1 || got[0] != "mode 0 -> 0644" || got[changesMax] != "and 3 more" {
		t.Errorf("%q", got)
	}
	if got := Changes(list[:changesMax]); len(got) != changesMax || slices.Contains(got, "and 0 more") {
		t.Errorf("%q", got)
	}
}

func TestDescribe(t *testing.T) {
	for want, c := range map[string]host.Change{
		"created":           {To: "created"},
		"mode 0644":         {Field: "mode", To: "0644"},
		"mode 0600 -> 0644": {Field: "mode", From: "0600", To: "0644"},
		"absent -> file":    {From: "absent", To: "file"},
	} {
		if got := Describe(c); got != want {
			t.Errorf("%+v is described as %q, want %q", c, got, want)
		}
	}
}
