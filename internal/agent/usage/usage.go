// Package usage measures what an agent takes of its host, and what the commands take that it runs.
package usage

import (
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Usage is what an agent takes of its host.
type Usage struct {
	RSS        uint64    `json:"rssBytes"`
	Anonymous  uint64    `json:"anonymousBytes"` // of RSS: what is not a file's
	CPU        float64   `json:"cpuSeconds"`     // of the agent itself
	Commands   Commands  `json:"commands"`
	Goroutines int       `json:"goroutines"`
	Watches    int       `json:"watches"`
	Resources  int       `json:"resources"`
	Since      time.Time `json:"since"` // the agent's start
	Version    string    `json:"version"`
}

// Commands is what the commands have taken that have ended since the agent started, with all that they ran and waited for. What a unit
// takes that the agent has started is the unit's.
type Commands struct {
	CPU float64 `json:"cpuSeconds"`
	RSS uint64  `json:"rssBytes"` // the largest of any one process
}

// Now measures this process.
func Now() Usage {
	u := Usage{Goroutines: runtime.NumGoroutine(), Version: Version()}
	var r unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &r) == nil {
		u.CPU = seconds(&r)
	}
	if unix.Getrusage(unix.RUSAGE_CHILDREN, &r) == nil {
		u.Commands = Commands{CPU: seconds(&r), RSS: uint64(max(r.Maxrss, 0)) << 10}
	}
	if text, err := os.ReadFile("/proc/self/status"); err == nil {
		u.RSS, u.Anonymous = kilobytes(string(text), "VmRSS:"), kilobytes(string(text), "RssAnon:")
	}
	return u
}

// Version is of this program.
func Version() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		return info.Main.Version
	}
	return "unknown"
}

func seconds(r *unix.Rusage) float64 {
	return time.Duration(r.Utime.Nano() + r.Stime.Nano()).Seconds()
}

// kilobytes reads a line of proc(5)'s status, as bytes; 0 where there is none.
func kilobytes(status, name string) uint64 {
	_, rest, _ := strings.Cut(status, "\n"+name)
	line, _, _ := strings.Cut(rest, "\n")
	n, err := strconv.ParseUint(strings.TrimSuffix(strings.TrimSpace(line), " kB"), 10, 64)
	if err != nil {
		return 0
	}
	return n << 10
}
