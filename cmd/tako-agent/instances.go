package main

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tako.dev/tako/internal/agent"
	"tako.dev/tako/internal/present"
	"tako.dev/tako/internal/run"
	"tako.dev/tako/internal/run/all"
	bus "tako.dev/tako/internal/systemd"
)

// The commands that are not for people, but for what runs the tasks of instances.
const (
	shimName      = "mind-task"      // of the runtime Process, for each attempt
	unitName      = "mind-unit"      // of the runtime Systemd, at the beginning of a unit and at its end
	containerName = "mind-container" // of the runtime OCI, for each attempt
)

// memoryDir is where on a host secrets of tasks are kept that may be on no disk.
const memoryDir = "/run/tako/tasks"

// newMinders are those commands: they take an order, and nothing else is to run in their processes.
func newMinders() []*cobra.Command {
	return []*cobra.Command{
		{
			Use: shimName, Short: "Mind a task for an agent", Hidden: true, Args: cobra.NoArgs,
			RunE: func(*cobra.Command, []string) error {
				os.Exit(all.ServeProcess())
				return nil
			},
		},
		{
			Use: containerName, Short: "Mind a container for an agent", Hidden: true, Args: cobra.NoArgs,
			RunE: func(*cobra.Command, []string) error {
				os.Exit(all.ServeContainer())
				return nil
			},
		},
		{
			Use: unitName, Short: "Mind a unit for an agent", Hidden: true, DisableFlagParsing: true,
			RunE: func(_ *cobra.Command, args []string) error {
				os.Exit(all.ServeUnit(args))
				return nil
			},
		},
	}
}

// runtimes are those that the agent of this host has. Below a root that is not the host's, systemd is somebody else's.
func (c *common) runtimes(b *bus.Bus) []run.Kind {
	o := all.Options{Shim: child(shimName), Container: child(containerName)}
	if program, err := os.Executable(); err == nil && b != nil && c.root == "/" && os.Getuid() == 0 {
		o.Unit, o.Bus, o.Memory = []string{program, unitName}, b, memoryDir
	}
	return all.Kinds(o)
}

// instancesText lists the instances of workloads that the host has.
func instancesText(list []agent.Instance, now time.Time) string {
	var b strings.Builder
	for i := range list {
		b.WriteString(instanceText(&list[i], now))
	}
	return b.String()
}

func instanceText(a *agent.Instance, now time.Time) string {
	var b strings.Builder
	state := a.Phase
	if a.Ready {
		state += ", ready"
	}
	fmt.Fprintf(&b, "  instance/%s  %s", present.Quote(a.Name), state)
	if a.Restarts > 0 {
		fmt.Fprintf(&b, ", %d restarts", a.Restarts)
	}
	for _, name := range slices.Sorted(maps.Keys(a.Ports)) {
		fmt.Fprintf(&b, "  %s:%d", name, a.Ports[name])
	}
	b.WriteByte('\n')
	if a.Code != 0 {
		fmt.Fprintf(&b, "    %s  %s", a.Code, present.Escape(a.Message))
		if !a.Since.IsZero() {
			fmt.Fprintf(&b, "  (since %s)", present.Ago(a.Since, now))
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// showInstance explains one instance.
func showInstance(a *agent.Instance, history func()) {
	now := time.Now()
	fmt.Print(strings.TrimPrefix(instanceText(a, now), "  "))
	fmt.Printf("  of workload %s, revision %s, runtime %s\n", present.Quote(a.Workload), present.Quote(a.Revision), a.Runtime)
	for i := range a.Tasks {
		t := &a.Tasks[i]
		fmt.Printf("  task %s  %s, attempt %d", present.Quote(t.Name), t.Phase, t.Attempt)
		if t.Next > 0 {
			fmt.Printf(", next in %s", present.Duration(t.Next))
		}
		fmt.Println()
		for _, p := range t.Probes {
			word := "no"
			if p.Yes {
				word = "yes"
			}
			fmt.Printf("    %s probe: %s  %s\n", p.Probe, word, present.Escape(p.Words))
		}
		for _, p := range slices.Backward(t.Past) {
			fmt.Printf("    attempt %d ran %s, %s\n", p.Attempt, present.Duration(p.Ran), present.Escape(p.Ended))
		}
	}
	history()
}
