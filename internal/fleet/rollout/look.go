package rollout

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/fleet/rollout/pace"
)

// look is how what has come so far is looked at. Of what has worked before, nothing is.
type look struct {
	plan    string    // names the waves that are counted
	passed  int       // waves that were looked at for as long as they are to be
	first   time.Time // when the first node worked
	held    time.Time // since when all that has begun works
	cleared bool      // all was
	why     string    // what is waited for, where everything that has begun works
	shut    string    // why nothing at all goes on: a gate is not measured
	broken  string    // why it has failed: a gate is out of bounds
}

// looked reports whether anything is looked at.
func (r *rollout) looked() bool { return r.goal != r.proven.Of }

// examine looks at what has come so far: wave by wave, and in the end at all of it.
func (r *rollout) examine() {
	if !r.looked() {
		return
	}
	r.plan = wavesID(r.Spec.Waves)
	if r.Was.Target == r.Target && r.Was.Failed == r.failed { // otherwise it begins anew
		r.first = r.Was.First
		if r.Was.Waves == r.plan { // what was looked at before were others
			r.passed, r.held = min(r.Was.Passed, len(r.Spec.Waves)), r.Was.Held
		}
	}
	if r.failed != (Failure{}) {
		return
	}
	if r.first.IsZero() && len(r.in(done)) > 0 {
		r.first = r.now
	}
	r.measure()
	if r.broken != "" {
		r.held = time.Time{}
		return
	}
	for waves := r.waves(); ; r.passed++ {
		rest := r.passed == len(waves)
		over := r.finished() || !rest && waves[r.passed].Over()
		switch {
		case !rest && waves[r.passed].Members == 0:
			r.held = time.Time{}
			continue
		case !over && !r.held.IsZero() && len(r.in(failed, broken)) == 0:
			return // nodes have joined, or were not heard yet: nothing begins anew because of that
		case !over:
			r.held = time.Time{}
			return
		case r.held.IsZero():
			r.held = r.now
		}
		if r.why = r.waits(); r.why != "" {
			return
		}
		if rest {
			r.cleared = true
			return
		}
		r.held = time.Time{}
	}
}

// measure looks at the gates since the first node has worked.
func (r *rollout) measure() {
	if len(r.Spec.Gates) == 0 || r.first.IsZero() {
		return
	}
	r.broken, r.shut = pace.Gates(r.Spec.Gates, r.Gates, r.first, r.first)
	r.alarm.Passed(r.now.Add(pace.GateEvery))
}

// waits says why it is not over yet that what has begun is looked at. Empty: it is.
func (r *rollout) waits() string {
	what, pause := "all nodes work", r.Spec.MonitorOrZero()
	if r.passed < len(r.Spec.Waves) {
		what, pause = fmt.Sprintf("wave %d works", r.passed+1), r.Spec.Waves[r.passed].PauseOrZero()
	}
	until := r.held.Add(pause)
	if !r.alarm.Passed(until) {
		return fmt.Sprintf("%s, and is looked at until %s", what, until.UTC().Format(time.RFC3339))
	}
	if _, holds := pace.Gates(r.Spec.Gates, r.Gates, r.first, until); holds != "" {
		return what + "; " + holds
	}
	return ""
}

// judge says that the target has failed, where that is to be remembered: a gate is out of bounds, or it does not work on nodes, and all go back because
// of it. A node that falls silent halts it and no more: most come back, and what nobody hears of is no failure. What people pause is not judged.
func (r *rollout) judge() Failure {
	because := ""
	bad := slices.DeleteFunc(r.halting(), func(s *stop) bool { return s.state != failed })
	switch {
	case r.failed != (Failure{}), !r.looked(), r.Spec.Pause, r.now.Before(r.Quiet):
	case r.broken != "":
		because = r.broken
	case r.canGoBack() && (pace.Reached(len(bad), r.Spec.HaltOnFailedOrDefault()) || r.waveLost()):
		var nodes []string
		for _, s := range bad[:min(len(bad), CulpritsMax)] {
			nodes = append(nodes, fmt.Sprintf("node %s: %s", s.Name, s.why(r.goal).Why))
		}
		because = r.tooMany(bad) + ": " + strings.Join(nodes, "; ")
	}
	if because == "" {
		return Failure{}
	}
	return Failure{Of: r.Target, Generation: r.Generation, At: r.now, Why: because}
}

// waveLost: nothing is to come any more of the last wave that has begun, and on the nodes that have it it does not work.
func (r *rollout) waveLost() bool {
	begun, waves := r.wave(), r.waves()
	if begun == len(waves) || waves[begun].Coming > 0 || waves[begun].Converged > 0 {
		return false
	}
	return slices.ContainsFunc(r.in(failed), func(s *stop) bool { return s.place.Wave == begun })
}

// wavesID names waves: what was counted of others says nothing.
func wavesID(waves []declare.Wave) string {
	if len(waves) == 0 {
		return ""
	}
	text, err := json.Marshal(waves)
	if err != nil {
		return "" // there is nothing in a wave that JSON cannot say
	}
	digest := sha256.Sum256(text)
	return hex.EncodeToString(digest[:8])
}

// tooMany says that nodes are in a bad way.
func (r *rollout) tooMany(halting []*stop) string {
	return fmt.Sprintf("nodes that have %s and are in a bad way: %d; spec.rollout.haltOnFailed is %d", r.goal.Revision, len(halting), r.Spec.HaltOnFailedOrDefault())
}
