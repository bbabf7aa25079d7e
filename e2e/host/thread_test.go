package host

import (
	"context"
	"os/exec"
	"sync"
	"sync/atomic"
	"testing"
)

// TestStartBound: what was started to die with this process outlives the threads that come and go in it.
func TestStartBound(t *testing.T) {
	const processes, threads = 8, 400
	var ended atomic.Int32
	var wait sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	for range processes {
		wait.Add(1)
		cmd := exec.CommandContext(ctx, "sleep", "600")
		if err := StartBound(cmd, func() {
			defer wait.Done()
			_ = cmd.Wait() // how it ended is what the test asks about
			ended.Add(1)
		}); err != nil {
			t.Fatal(err)
		}
		for range threads / processes {
			onOwnThread(func() {})
		}
	}
	if n := ended.Load(); n > 0 {
		t.Errorf("%d of %d processes have ended with a thread", n, processes)
	}
	cancel()
	wait.Wait()
}
