package runtest

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"tako.dev/tako/internal/run"
)

// Main runs the tests of a package, or what this process is instead: a program that a task runs, or an agent that starts a task.
func Main(m *testing.M, open func(dir string) (run.Runtime, func() error, error)) {
	switch {
	case len(os.Args) > 2 && os.Args[1] == programWord:
		program(os.Args[2], os.Args[3:])
		syscall.Exit(0)
	case len(os.Args) == 3 && os.Args[1] == agentWord:
		// It ends without os.Exit, before which the race detector sleeps for a second.
		if err := agent(os.Args[2], open); err != nil {
			fmt.Fprintln(os.Stderr, err)
			syscall.Exit(1)
		}
		syscall.Exit(0)
	}
	os.Exit(m.Run())
}

// program is what tasks run that no shell does.
func program(word string, args []string) {
	switch word {
	case "show": // what it was given, byte for byte
		fmt.Printf("%x\n%x\n", strings.Join(args, "\x00"), strings.Join(os.Environ(), "\x00"))
	case "eat": // memory, until there is none
		var all [][]byte
		for {
			b := make([]byte, 1<<20)
			for i := range b {
				b[i] = 1
			}
			all = append(all, b)
			if len(all) > 4096 {
				return
			}
		}
	case "serve": // a word at a port, to whoever connects
		serve(args[0], args[1])
	case "ask": // for a word at some address
		fmt.Println(ask(args[0]))
	case "spin": // processor time
		for stop := time.Now().Add(time.Minute); time.Now().Before(stop); {
		}
	}
}

// command is what an agent is to start.
type command struct {
	Dir  string
	Task run.Task
}

// marker is a path that the agent looks for just before it begins, so that this is seen among its system calls.
const marker = "/runtest-begin"

// agent starts a task on one thread, and ends without a word to anybody.
func agent(text string, open func(dir string) (run.Runtime, func() error, error)) error {
	runtime.LockOSThread()
	var c command
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		return err
	}
	rt, _, err := open(c.Dir)
	if err != nil {
		return err
	}
	_, _ = os.Lstat(marker)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_, err = rt.Start(ctx, c.Task)
	return err
}
