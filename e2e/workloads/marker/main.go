// Command marker notes when it runs, by the clock that all hosts of a machine share and nobody sets: what tests of exclusive workloads run. SIGTERM
// does not end it.
//
//	MARKS   a directory; its file there is called NODE.PID and has two times in nanoseconds: when it began, and when it ran last
//	NODE    where it runs
package main

import (
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// every is how long it may have run on after the time that it has noted.
const every = 5 * time.Millisecond

func main() {
	signal.Ignore(syscall.SIGTERM)
	err := mark(filepath.Join(os.Getenv("MARKS"), fmt.Sprintf("%s.%d", os.Getenv("NODE"), os.Getpid())))
	fmt.Fprintln(os.Stderr, "marker:", err)
	os.Exit(1)
}

// mark goes on until it cannot.
func mark(name string) error {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	fmt.Println("marks in", name)
	begin := now()
	tick := time.NewTicker(every)
	for {
		if _, err := f.WriteAt(fmt.Appendf(nil, "%20d %20d\n", begin, now()), 0); err != nil {
			return err
		}
		<-tick.C
	}
}

// now is the time of the boot clock.
func now() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		panic("clock_gettime(CLOCK_BOOTTIME): " + err.Error()) // it cannot fail with a valid clock
	}
	return ts.Nano()
}
