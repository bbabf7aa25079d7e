package load

import (
	"testing"
	"time"
)

func TestCountCalls(t *testing.T) {
	table := `% time     seconds  usecs/call     calls    errors syscall
------ ----------- ----------- --------- --------- ------------------
 54.70    1.032299        1470       702        44 futex
  7.01    0.132282          14        13         9 statx
  0.10    0.000100          10         2           readlinkat
------ ----------- ----------- --------- --------- ------------------
100.00    1.164681                   717        53 total
`
	if stats, all := countCalls(table); stats != 15 || all != 717 {
		t.Errorf("%d of %d calls, want 15 of 717", stats, all)
	}
}

func TestSample(t *testing.T) {
	var s Sample
	for i := 100; i > 0; i-- {
		s = append(s, time.Duration(i)*time.Millisecond)
	}
	if s.Median() != 51*time.Millisecond || s.At(0.99) != 100*time.Millisecond || s.At(1) != 100*time.Millisecond {
		t.Errorf("%v", s)
	}
	if s[0] != 100*time.Millisecond {
		t.Error("the sample was sorted in place")
	}
}
