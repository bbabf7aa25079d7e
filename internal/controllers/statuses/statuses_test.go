package statuses

import (
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/internal/fleet/jobs"
	"tako.dev/tako/internal/fleet/rollout/pace"
	fleet "tako.dev/tako/internal/fleet/workload"
	"tako.dev/tako/internal/reason"
)

var start = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

// draws makes values that a status may hold.
type draws struct{ *rand.Rand }

func (d draws) text() string { return []string{"", "web-abc", "why ever"}[d.IntN(3)] }

func (d draws) code() reason.Code {
	return []reason.Code{reason.RolloutFailed, reason.RolloutStuck, reason.NodeDrained, reason.UnknownCode}[d.IntN(4)]
}

// at is a moment as it is stored: with seconds, or parts of them.
func (d draws) at(unit time.Duration) time.Time {
	if d.IntN(3) == 0 {
		return time.Time{}
	}
	return start.Add(time.Duration(d.Int64N(int64(400 * 24 * time.Hour)))).Truncate(unit)
}

func (d draws) failed() fleet.FailedRevision {
	return fleet.FailedRevision{Revision: d.text(), Code: d.code(), Why: d.text(), At: d.at(time.Second)}
}

func (d draws) status() fleet.Status {
	n := func() int { return d.IntN(1000) }
	s := fleet.Status{
		ObservedGeneration: d.Int64N(9), Phase: []pace.Phase{"", pace.Rolling, pace.RolledBack}[d.IntN(3)], Since: d.at(time.Second), Why: d.text(), Wanted: n(), Collisions: d.IntN(8),
		Stable: pace.Proven[string]{Of: d.text(), At: d.at(time.Second)}, Budget: d.Int64(), Backoff: fleet.Backoff{Failed: n(), Until: d.at(time.Microsecond)},
		Counts: fleet.Counts{Live: n(), Updated: n(), Pending: n(), Ready: n(), Available: n(), Unreachable: n(), Unheard: n(), Terminating: n(), Abandoned: n()},
	}
	for slot := range d.IntN(4) {
		s.Homes = append(s.Homes, fleet.Home{Slot: 2 * slot, Node: []string{"n0", "n1"}[d.IntN(2)], Spare: d.IntN(2) == 0})
	}
	for range d.IntN(3) {
		s.Failed = append(s.Failed, d.failed())
		s.Taken = append(s.Taken, fleet.Taken{UID: d.text(), Why: d.code()})
		s.Culprits = append(s.Culprits, fleet.Culprit{Instance: d.text(), Node: d.text(), Why: d.text(), Since: d.at(time.Second)})
		s.Leaving = append(s.Leaving, fleet.Culprit{Instance: d.text(), Code: d.code()})
	}
	if d.IntN(4) > 0 {
		s.Rollout = fleet.Rollout{
			Target: "web-t", Goal: d.text(), Over: d.IntN(2) == 0, Step: n(), Held: d.at(time.Microsecond), Passed: d.at(time.Microsecond), Ended: d.at(time.Microsecond),
			Clock: d.at(time.Microsecond), Best: fleet.Progress{Available: n(), Old: n()}, Scaled: d.at(time.Microsecond), Failures: n(),
		}
		if d.IntN(2) == 0 {
			halt := d.failed()
			s.Rollout.Halt = &halt
		}
		for range d.IntN(3) {
			s.Rollout.Counted = append(s.Rollout.Counted, d.text())
		}
	}
	return s
}

// through is a status as it comes back from the store.
func through[T any](t *testing.T, v *T) *T {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	var back T
	if err := json.Unmarshal(data, &back); err != nil {
		t.Fatal(err)
	}
	return &back
}

// TestStatusIsLossless: what a decision says comes back from the store as it was, and what is stored is written again as it is.
func TestStatusIsLossless(t *testing.T) {
	d := draws{rand.New(rand.NewPCG(1, 2))}
	for range 3000 {
		is := d.status()
		stored := v1alpha1.WorkloadStatus{Selector: "kept"}
		Encode(&is, &stored)
		back := Decode(through(t, &stored))
		if !reflect.DeepEqual(utc(back), utc(is)) {
			t.Fatalf("%+v\ncomes back as\n%+v", is, back)
		}
		again := v1alpha1.WorkloadStatus{Selector: "kept"}
		Encode(&back, &again)
		if !equality.Semantic.DeepEqual(stored, again) {
			t.Fatalf("%+v\nis written again as\n%+v", stored, again)
		}
	}
}

// utc has equal times be one.
func utc[T any](s T) T {
	plain(reflect.ValueOf(&s))
	return s
}

// plain has all times in a value be of UTC.
func plain(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			plain(v.Elem())
		}
	case reflect.Slice:
		for i := range v.Len() {
			plain(v.Index(i))
		}
	case reflect.Struct:
		if at, is := v.Interface().(time.Time); is {
			v.Set(reflect.ValueOf(at.UTC()))
			return
		}
		for i := range v.NumField() {
			plain(v.Field(i))
		}
	}
}

func TestJobStatusIsLossless(t *testing.T) {
	d := draws{rand.New(rand.NewPCG(3, 4))}
	for range 1000 {
		is := jobs.RunStatus{Succeeded: d.IntN(9), Failed: d.IntN(9), InARow: d.IntN(9), LastFailure: d.at(time.Microsecond), Result: []jobs.Result{"", jobs.Complete}[d.IntN(2)], Over: d.at(time.Microsecond)}
		for range d.IntN(3) {
			is.Counted = append(is.Counted, d.text())
		}
		back := DecodeJob(through(t, EncodeJob(&is)))
		if !back.LastFailure.Equal(is.LastFailure) || !back.Over.Equal(is.Over) {
			t.Fatalf("%+v comes back as %+v", is, back)
		}
		back.LastFailure, back.Over = is.LastFailure, is.Over
		if !reflect.DeepEqual(back, is) {
			t.Fatalf("%+v comes back as %+v", is, back)
		}
		s := jobs.ScheduleStatus{Last: d.at(time.Second), Cron: d.text(), TimeZone: d.text(), Suspended: d.IntN(2) == 0}
		again := DecodeSchedule(through(t, EncodeSchedule(&s, d.at(time.Second), nil)))
		if !again.Last.Equal(s.Last) {
			t.Fatalf("%+v comes back as %+v", s, again)
		}
		if again.Last = s.Last; again != s {
			t.Fatalf("%+v comes back as %+v", s, again)
		}
	}
}

// TestUnknownCode: what a later version has stored is told, and decides nothing.
func TestUnknownCode(t *testing.T) {
	if got := CodeOf("TK9999"); got != reason.UnknownCode {
		t.Errorf("%s", got)
	}
}
