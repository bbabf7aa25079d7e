package workload

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"tako.dev/tako/declare"
	declared "tako.dev/tako/declare/workload"
	"tako.dev/tako/internal/fleet/rollout/pace"
)

// edge is an arrow of a picture.
type edge struct{ from, to string }

var arrow = regexp.MustCompile(`(?m)^\s*(\w+) --> (\w+): (.+)$`)

// picture reads the arrows of the state diagram below a heading of docs/workloads.md, with what stands beside them.
func picture(t *testing.T, heading string) map[edge]string {
	t.Helper()
	text, err := os.ReadFile("../../../docs/workloads.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(text), "\n## "+heading+"\n")
	_, diagram, drawn := strings.Cut(section, "```mermaid\nstateDiagram-v2\n")
	diagram, _, ended := strings.Cut(diagram, "```")
	if !found || !drawn || !ended {
		t.Fatalf("docs/workloads.md has no state diagram below %q", heading)
	}
	arrows := map[edge]string{}
	for _, m := range arrow.FindAllStringSubmatch(diagram, -1) {
		arrows[edge{strings.ToLower(m[1]), strings.ToLower(m[2])}] = m[3]
	}
	return arrows
}

// TestPictureOfInstances: along the arrows, and only along them, reports are believed; an arrow that says "again" is another attempt.
func TestPictureOfInstances(t *testing.T) {
	arrows := picture(t, "An instance")
	reaches := map[edge]bool{}
	for e, label := range arrows {
		reaches[e] = !strings.HasPrefix(label, "again")
	}
	for range phaseNames { // what was not told is skipped
		for a := range arrows {
			for b := range maps.Clone(reaches) {
				if reaches[b] && reaches[a] && a.to == b.from {
					reaches[edge{a.from, b.to}] = true
				}
			}
		}
	}
	for from := Pending; from <= Done; from++ {
		for to := Pending; to <= Done; to++ {
			e := edge{from.String(), to.String()}
			if from == Pending { // it has no node that could tell of it
				if _, drawn := arrows[e]; drawn != (to == Placed) {
					t.Errorf("%s to %s", from, to)
				}
				continue
			}
			if _, believed := Observe(Instance{UID: "u", Attempt: 1, Phase: from}, Report{UID: "u", Attempt: 1, Phase: to}, start); from != to && believed != reaches[e] {
				t.Errorf("from %s to %s: believed %v, drawn %v", from, to, believed, reaches[e])
			}
			if label, drawn := arrows[e]; drawn && strings.HasPrefix(label, "again") {
				if _, believed := Observe(Instance{UID: "u", Attempt: 1, Phase: from}, Report{UID: "u", Attempt: 2, Phase: to}, start); !believed {
					t.Errorf("another attempt from %s to %s is not believed", from, to)
				}
			}
		}
	}
}

// lived are the phases that rollouts go through when nothing but the template, the number, and what people say changes.
func lived(t *testing.T) map[edge]bool {
	seen := map[edge]bool{}
	watch := func(w *world, span time.Duration) {
		for end := w.now.Add(span); w.now.Before(end); {
			was := w.view.Was.Phase
			if d := w.round(); was != "" && was != d.Status.Phase {
				seen[edge{strings.ToLower(string(was)), strings.ToLower(string(d.Status.Phase))}] = true
			}
		}
	}
	rollouts := []declared.Rollout{rolling("1", "0"), canary(declared.CanaryStep{Replicas: "1", Pause: "1m"}), {Strategy: declared.BlueGreen, Promotion: declared.ManualPromotion}}
	for _, r := range rollouts {
		for _, monitor := range []string{"", "2m"} {
			for _, onFailure := range []declare.OnFailure{declare.RollBack, declare.Halt} {
				for _, q := range []quality{good, dead, mute} {
					r.Monitor, r.OnFailure, r.ProgressDeadline = monitor, onFailure, "2m"
					w := stage(t, 4, r)
					watch(w, 5*time.Minute)
					w.declare(20, q)
					watch(w, 3*time.Minute)
					w.view.Approval = Approval{w.view.Was.Rollout.Goal, 9}
					watch(w, 10*time.Minute)
					w.declare(30, good)
					watch(w, 10*time.Minute)
					w.view.Approval = Approval{w.view.Was.Rollout.Goal, 9}
					watch(w, 10*time.Minute)
				}
			}
		}
	}
	w := running(t, 2, rolling("1", "0"))
	w.declare(20, good)
	watch(w, 10*time.Second)
	for _, pause := range []bool{true, false} {
		w.view.Spec.Rollout.Pause = pause
		watch(w, time.Minute)
	}
	w.scale(0)
	watch(w, time.Minute)
	w.scale(2)
	watch(w, time.Minute)
	w.view.Deleting = true
	watch(w, time.Minute)
	return seen
}

// TestPictureOfRollouts: the arrows are those that rollouts go along.
func TestPictureOfRollouts(t *testing.T) {
	arrows, seen := picture(t, "A rollout"), lived(t)
	for e := range seen {
		if _, drawn := arrows[e]; !drawn {
			t.Errorf("from %s to %s there is no arrow", e.from, e.to)
		}
	}
	for e := range arrows {
		if !seen[e] {
			t.Errorf("from %s to %s nothing goes", e.from, e.to)
		}
	}
	drawn := map[string]bool{}
	for e := range arrows {
		drawn[e.from], drawn[e.to] = true, true
	}
	for _, p := range []pace.Phase{pace.Empty, pace.Complete, pace.Rolling, pace.Waiting, pace.Halted, pace.Paused, pace.Monitoring, pace.RollingBack, pace.RolledBack, Stopping} {
		if !drawn[strings.ToLower(string(p))] {
			t.Errorf("%s is not drawn; there are %v", p, slices.Sorted(maps.Keys(drawn)))
		}
	}
}
