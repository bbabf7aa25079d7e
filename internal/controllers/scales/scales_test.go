package scales

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/internal/fleet/scale"
	"tako.dev/tako/internal/reason"
)

// TestStatusIsLossless: what a decision remembers comes back from the store as it was.
func TestStatusIsLossless(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	at := func() time.Time { return time.UnixMicro(r.Int64N(2e15)).UTC() }
	maybe := func() time.Time {
		if r.IntN(3) == 0 {
			return time.Time{}
		}
		return at()
	}
	phase := func() (p scale.Phase) {
		p.Since = maybe()
		for range r.IntN(3) {
			p.Asked = append(p.Asked, scale.Asked{At: at(), Replicas: r.IntN(9)})
		}
		return p
	}
	for range 1000 {
		is := scale.Status{Decided: maybe(), Replicas: r.IntN(9), Declared: r.IntN(9), Up: phase(), Down: phase()}
		for range r.IntN(3) {
			is.Grown = append(is.Grown, scale.Step{At: at(), By: r.IntN(9)})
			is.Shrunk = append(is.Shrunk, scale.Step{At: at(), By: r.IntN(9)})
		}
		data, err := json.Marshal(Encode(&scale.Decision{Status: is, Why: "why", Code: reason.NoSamples}))
		if err != nil {
			t.Fatal(err)
		}
		var stored v1alpha1.ScaleStatus
		if err := json.Unmarshal(data, &stored); err != nil {
			t.Fatal(err)
		}
		if stored.Message != "why" || stored.Code != "TK0780" {
			t.Fatalf("stored is %s", data)
		}
		back := Decode(&stored)
		again, err := json.Marshal(Encode(&scale.Decision{Status: back, Why: "why", Code: reason.NoSamples}))
		if err != nil {
			t.Fatal(err)
		}
		if string(again) != string(data) || !reflect.DeepEqual(utc(back), is) {
			t.Fatalf("%+v\ncomes back as\n%+v", is, back)
		}
	}
}

// utc has the times of a status be of UTC.
func utc(s scale.Status) scale.Status {
	set := func(at *time.Time) {
		if !at.IsZero() {
			*at = at.UTC()
		}
	}
	set(&s.Decided)
	for _, p := range []*scale.Phase{&s.Up, &s.Down} {
		set(&p.Since)
		for i := range p.Asked {
			set(&p.Asked[i].At)
		}
	}
	for _, steps := range [][]scale.Step{s.Grown, s.Shrunk} {
		for i := range steps {
			set(&steps[i].At)
		}
	}
	return s
}

// TestEvents: each change is told once, and what did not change is not.
func TestEvents(t *testing.T) {
	s := func(replicas int32, code string) *v1alpha1.ScaleStatus {
		return &v1alpha1.ScaleStatus{Replicas: replicas, Code: code, Message: "words"}
	}
	for _, c := range []struct {
		was, is *v1alpha1.ScaleStatus
		want    string
	}{
		{nil, s(1, ""), "[]"}, {s(1, ""), nil, "[]"}, {s(2, ""), s(2, ""), "[]"}, {s(2, "TK0780"), s(2, "TK0780"), "[]"}, {s(2, "TK0780"), s(2, ""), "[]"},
		{s(1, ""), s(3, ""), "[{Normal ScaledUp from 1 to 3: words}]"}, {s(3, ""), s(1, ""), "[{Normal ScaledDown from 3 to 1: words}]"},
		{s(1, ""), s(3, "TK0781"), "[{Normal ScaledUp from 1 to 3: words} {Warning ScaleBounded words}]"}, {s(3, "TK0781"), s(3, "TK0780"), "[{Warning MeasuresMissing words}]"},
	} {
		if is := fmt.Sprint(Events(c.was, c.is)); is != c.want {
			t.Errorf("from %+v to %+v it tells %s, want %s", c.was, c.is, is, c.want)
		}
	}
}
