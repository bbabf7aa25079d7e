package declare

import (
	"fmt"
	"time"
)

func (v *validator) rollout() {
	r := &v.config.Spec.Rollout
	if r.MaxUnavailable != "" && !r.MaxUnavailable.valid() {
		v.invalid("spec.rollout.maxUnavailable", fmt.Sprintf("%q is neither a number from 1 nor a percentage from 1%% to 100%%", clipText(string(r.MaxUnavailable))), `write for example 3 or "10%"`)
	}
	if r.HaltOnFailed != nil && *r.HaltOnFailed < 1 {
		v.invalid("spec.rollout.haltOnFailed", fmt.Sprintf("haltOnFailed is %d, the least is 1", *r.HaltOnFailed), "")
	}
	v.try(r)
	v.waiting("spec.rollout.monitor", r.Monitor, monitorMax, "24h")
	v.fetchWindow(r.FetchWindow)
	v.faults = append(v.faults, CheckWord("spec.rollout.onFailure", "answer to a failure", r.OnFailure, RollBack, Halt)...)
	v.faults = append(v.faults, CheckGates("spec.rollout.gates", r.Gates, v.config.checkKey)...)
	if !v.atMost("spec.rollout.waves", len(r.Waves), WavesMax, "waves", "") {
		return
	}
	for i := range r.Waves {
		w, at := &r.Waves[i], indexPath("spec.rollout.waves", i)
		v.selector(at, &w.Selector)
		if w.Nodes != "" && !w.Nodes.valid() {
			v.invalid(at+".nodes", fmt.Sprintf("%q is neither a number from 1 nor a percentage from 1%% to 100%%", clipText(string(w.Nodes))), `write for example 3 or "10%"`)
		}
		v.waiting(at+".pause", w.Pause, pauseMax, "7 days")
	}
}

// The bounds of waiting: what takes longer is two changes.
const (
	pauseMax   = 7 * 24 * time.Hour
	monitorMax = 24 * time.Hour
)

// waiting checks how long is waited, which may be left out.
func (v *validator) waiting(path, text string, most time.Duration, words string) {
	if d, err := time.ParseDuration(text); text != "" && (err != nil || d < 0 || d > most) {
		v.invalid(path, fmt.Sprintf("%q is not a time of at most %s", clipText(text), words), `write for example "30s", "10m" or "1h30m"`)
	}
}

// FetchWindowMax is the longest time over which hosts spread their fetches: long before the state expires that they are to fetch. What is to come
// more slowly than that goes in waves.
const FetchWindowMax = time.Hour

// fetchWindow wants whole seconds: hosts are told no others.
func (v *validator) fetchWindow(text string) {
	if d, err := time.ParseDuration(text); text != "" && (err != nil || d < 0 || d > FetchWindowMax || d%time.Second != 0) {
		v.invalid("spec.rollout.fetchWindow", fmt.Sprintf("%q is not a time of whole seconds of at most 1h", clipText(text)), `write for example "30s", "10m" or "1h"`)
	}
}

// checkKey is a CheckKey for what a config names.
func (c *NodeConfig) checkKey(path string, key *KeySelector) []Fault {
	if key == nil {
		return nil
	}
	v := validator{config: c}
	v.keySelector(path, "object", key)
	return v.faults
}

// The bounds of a try: a host needs a moment to apply and to hear, and what is tried for days is forgotten.
const (
	tryMin = time.Second
	tryMax = 24 * time.Hour
)

func (v *validator) try(r *Rollout) {
	if r.Try == "" {
		return
	}
	d, err := time.ParseDuration(r.Try)
	switch {
	case err != nil:
		v.invalid("spec.rollout.try", fmt.Sprintf("%q is not a time", clipText(r.Try)), `write for example "20s", "10m" or "1h30m"`)
	case d < tryMin || d > tryMax || d%time.Second != 0:
		v.invalid("spec.rollout.try", fmt.Sprintf("%q is not a number of whole seconds from one to a day", clipText(r.Try)), `write for example "20s", "10m" or "1h30m"`)
	}
}
