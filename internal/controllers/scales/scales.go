// Package scales is what is stored of the scale of a workload, and what people are told when that changes. It does no I/O.
package scales

import (
	"fmt"

	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/internal/controllers/statuses"
	"tako.dev/tako/internal/fleet/scale"
	"tako.dev/tako/internal/reason"
)

// Encode writes a decision as it is stored.
func Encode(d *scale.Decision) *v1alpha1.ScaleStatus {
	s := &d.Status
	to := &v1alpha1.ScaleStatus{
		Decided: statuses.Micro(s.Decided), Replicas: int32(s.Replicas), Declared: int32(s.Declared), Up: encodePhase(&s.Up), Down: encodePhase(&s.Down), Message: d.Why,
		Code: statuses.CodeText(d.Code),
	}
	for _, x := range []struct {
		from []scale.Step
		to   *[]v1alpha1.ScaleStep
	}{{s.Grown, &to.Grown}, {s.Shrunk, &to.Shrunk}} {
		for _, step := range x.from {
			*x.to = append(*x.to, v1alpha1.ScaleStep{At: metav1.NewMicroTime(step.At), By: int32(step.By)})
		}
	}
	return to
}

func encodePhase(p *scale.Phase) v1alpha1.ScalePhase {
	to := v1alpha1.ScalePhase{Since: statuses.Micro(p.Since)}
	for _, a := range p.Asked {
		to.Asked = append(to.Asked, v1alpha1.ScaleAsked{At: metav1.NewMicroTime(a.At), Replicas: int32(a.Replicas)})
	}
	return to
}

// Decode reads what a decision must remember.
func Decode(s *v1alpha1.ScaleStatus) scale.Status {
	if s == nil {
		return scale.Status{}
	}
	was := scale.Status{Decided: statuses.FromMicro(s.Decided), Replicas: int(s.Replicas), Declared: int(s.Declared), Up: decodePhase(&s.Up), Down: decodePhase(&s.Down)}
	for _, step := range s.Grown {
		was.Grown = append(was.Grown, scale.Step{At: step.At.Time, By: int(step.By)})
	}
	for _, step := range s.Shrunk {
		was.Shrunk = append(was.Shrunk, scale.Step{At: step.At.Time, By: int(step.By)})
	}
	return was
}

func decodePhase(p *v1alpha1.ScalePhase) scale.Phase {
	was := scale.Phase{Since: statuses.FromMicro(p.Since)}
	for _, a := range p.Asked {
		was.Asked = append(was.Asked, scale.Asked{At: a.At.Time, Replicas: int(a.Replicas)})
	}
	return was
}

// Event is what people are told.
type Event struct {
	Type, Reason, Message string // as those of an Event of the API
}

// Events are what people are told when what is stored becomes something else: another number, and why that is not what the load needs.
func Events(was, is *v1alpha1.ScaleStatus) []Event {
	if is == nil || was == nil {
		return nil
	}
	var events []Event
	change := fmt.Sprintf("from %d to %d: %s", was.Replicas, is.Replicas, is.Message)
	switch {
	case is.Replicas > was.Replicas:
		events = append(events, Event{core.EventTypeNormal, "ScaledUp", change})
	case is.Replicas < was.Replicas:
		events = append(events, Event{core.EventTypeNormal, "ScaledDown", change})
	}
	if is.Code == was.Code {
		return events
	}
	switch is.Code {
	case reason.NoSamples.String():
		events = append(events, Event{core.EventTypeWarning, "MeasuresMissing", is.Message})
	case reason.ScaleBounded.String():
		events = append(events, Event{core.EventTypeWarning, "ScaleBounded", is.Message})
	}
	return events
}
