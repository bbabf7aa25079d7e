package usage

import (
	"os/exec"
	"testing"
)

// What the agent takes is measured, and what its commands take beside it.
func TestNow(t *testing.T) {
	before := Now()
	if before.RSS == 0 || before.Anonymous == 0 || before.Anonymous > before.RSS || before.Goroutines == 0 || before.Version == "" {
		t.Errorf("it measures %+v", before)
	}
	if err := exec.Command("sh", "-c", "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done").Run(); err != nil {
		t.Fatal(err)
	}
	after := Now()
	if after.Commands.CPU <= before.Commands.CPU || after.Commands.RSS == 0 {
		t.Errorf("a command has run, and it says %+v after %+v", after.Commands, before.Commands)
	}
	if after.CPU < before.CPU {
		t.Errorf("the agent took %v, and then %v", before.CPU, after.CPU)
	}
}

// A line that is not there, or is no number, is nothing.
func TestKilobytes(t *testing.T) {
	const status = "Name:\ta\nVmRSS:\t   12 kB\nRssAnon:\tmany kB\n"
	for name, want := range map[string]uint64{"VmRSS:": 12 << 10, "RssAnon:": 0, "VmSwap:": 0, "Name:": 0} {
		if got := kilobytes(status, name); got != want {
			t.Errorf("%s is %d, want %d", name, got, want)
		}
	}
}
