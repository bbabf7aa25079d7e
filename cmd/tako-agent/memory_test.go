package main

import (
	"math"
	"os"
	"os/exec"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"
)

// limitVariable has the test binary print which memory limit an agent has that opens its host.
const limitVariable = "TAKO_AGENT_TEST_LIMIT"

// TestMemoryLimit: an agent that opens its host has a limit on its memory; an operator's own counts instead, also one that lifts it.
func TestMemoryLimit(t *testing.T) {
	if dir := os.Getenv(limitVariable); dir != "" {
		_, host, err := (&common{root: dir}).host(false, "never")
		if err != nil {
			t.Fatal(err)
		}
		defer host.Close()
		println("limit", debug.SetMemoryLimit(-1))
		return
	}
	for set, want := range map[string]int64{"": memoryLimit, "64MiB": 64 << 20, "2GiB": 2 << 30, "off": math.MaxInt64} {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestMemoryLimit$")
		cmd.Env = append(os.Environ(), limitVariable+"="+t.TempDir(), "GOMEMLIMIT="+set)
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "limit "+strconv.FormatInt(want, 10)+"\n") {
			t.Errorf("GOMEMLIMIT=%s: want %d; %v\n%s", set, want, err, out)
		}
	}
}
