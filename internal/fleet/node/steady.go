package node

import "time"

// steadiness keeps a node that comes and goes from being called here each time.
type steadiness struct {
	shown  Presence
	raw    Presence
	back   time.Time // since when it is here again, while something else is shown
	lost   time.Time // the last time
	losses int       // that followed one another within flapWindow
}

// The brake on nodes that come and go: the first return counts at once, the second after 15 s, and so on, doubling, up to 5 minutes.
// That is at most eight returns in ten minutes, each stored, instead of sixty.
const (
	flapWindow = 10 * time.Minute
	holdMin    = 15 * time.Second // ours: as long as a loss takes to be seen
	holdMax    = 5 * time.Minute  // ours: half the window
)

func (s *steadiness) hold() time.Duration {
	if s.losses < 2 {
		return 0
	}
	hold := holdMin
	for i := 2; i < s.losses && hold < holdMax; i++ {
		hold *= 2
	}
	return min(hold, holdMax)
}

// steady returns what is to be shown of what is seen now.
func (s *steadiness) steady(raw Presence, alarm *alarms) Presence {
	was := s.raw
	s.raw = raw
	switch {
	case raw == Here && was != Here:
		s.back = alarm.now
	case raw != Here && was == Here:
		if alarm.now.Sub(s.lost) > flapWindow {
			s.losses = 0
		}
		s.losses++
		s.lost = alarm.now
	}
	if raw != Here || s.shown == Unheard || s.shown == Here || alarm.passed(s.back.Add(s.hold())) {
		s.shown = raw
	}
	return s.shown
}
