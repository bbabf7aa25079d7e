package instances

import (
	"slices"
	"testing"

	"tako.dev/tako/declare"
	"tako.dev/tako/declare/workload"
	"tako.dev/tako/internal/agent/instances/core"
	"tako.dev/tako/internal/reason"
)

// TestExpand: variables stand for their values, what is none stays, and nothing of a Secret becomes an argument.
func TestExpand(t *testing.T) {
	b := &builder{start: core.Start{Record: &core.Record{}}, task: &workload.Task{Env: []workload.EnvVar{
		{Name: "PASSWORD", ValueFrom: &workload.EnvSource{Secret: &declare.KeySelector{Name: "s", Key: "k"}}},
		{Name: "URL", Value: "http://app:$(PASSWORD)@db/"}, {Name: "ROOT", Value: "/srv"},
	}}}
	env := []string{"PORT_HTTP=8080", "PASSWORD=hidden", "URL=http://app:hidden@db/", "ROOT=/srv", "ROOT_OF=x"}
	words := []string{"/bin/web", "--listen=:$(PORT_HTTP)", "$(ROOT)/www", "$(NONE) $$(ROOT) $(date +%s)"}
	got, err := b.expand(words, env)
	if want := []string{"/bin/web", "--listen=:8080", "/srv/www", "$(NONE) $(ROOT) $(date +%s)"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%q, %v, want %q", got, err, want)
	}
	for _, word := range []string{"$(PASSWORD)", "--db=$(URL)"} {
		if got, err := b.expand([]string{word}, env); !reason.Is(err, reason.TaskRefused) {
			t.Errorf("%s: %q, %v", word, got, err)
		}
	}
	if words[1] != "--listen=:$(PORT_HTTP)" {
		t.Errorf("the template was changed: %q", words)
	}
}
