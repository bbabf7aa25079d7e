package workload

import declared "tako.dev/tako/declare/workload"

// Disruptable is how many instances of a workload may be told to go now for others, as far as its status says, which counts: those of a job
// all may, because another one is made in the place of each, and of others as many as its disruption budget leaves.
func Disruptable(spec *declared.Spec, s *Status) int {
	if spec.Mode == declared.RunToCompletion {
		return s.Counts.Live
	}
	t := termsOf(spec, s.Wanted)
	return max(s.Counts.Available-t.evictFloor, 0)
}
