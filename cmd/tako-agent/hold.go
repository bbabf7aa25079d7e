package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tako.dev/tako/internal/agent"
	"tako.dev/tako/internal/agent/local"
	"tako.dev/tako/internal/present"
	"tako.dev/tako/internal/reason"
)

// held are the flags that say what is held.
type held struct {
	*common
	config string
	all    bool
}

func (h *held) addTo(cmd *cobra.Command) {
	cmd.Flags().StringVar(&h.config, "config", "", "resources of this config: KIND/NAME or KIND/NAMESPACE/NAME")
	cmd.Flags().BoolVar(&h.all, "all", false, "everything on this host")
}

func newHold(c *common) *cobra.Command {
	h := held{common: c}
	var why, until string
	var lasts time.Duration
	cmd := &cobra.Command{
		Use:   "hold RESOURCE | --config CONFIG | --all",
		Short: "Look at something and do not change it, for a while and for a reason",
		Example: `  tako-agent hold /etc/motd --reason 'trying a text' --for 30m
  tako-agent hold --config NodeConfig/web --reason 'looking at a hung disk' --for 2h
  tako-agent hold --all --reason 'change freeze' --until '2026-12-27 08:00'
  tako-agent resume /etc/motd`,
		Long: `What is held is still looked at, and its drift is told. What it owes, such as a restart, is written down and done when the hold
ends: by itself, or by tako-agent resume. The hold is this host's own, and stays over restarts.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			end, err := holdEnd(until, lasts, time.Now())
			if err != nil {
				return err
			}
			return h.hold(cmd.Context(), args, agent.Hold{Reason: why, Owner: whoami(), Until: end})
		},
	}
	h.addTo(cmd)
	cmd.Flags().StringVar(&why, "reason", "", "why, for whoever finds it")
	cmd.Flags().DurationVar(&lasts, "for", 0, "how long, such as 30m or 2h")
	cmd.Flags().StringVar(&until, "until", "", "until when, such as 18:00, '2026-12-27 08:00' or 2026-12-27T08:00:00Z")
	cmd.MarkFlagsMutuallyExclusive("for", "until")
	return cmd
}

func newResume(c *common) *cobra.Command {
	h := held{common: c}
	cmd := &cobra.Command{
		Use:   "resume RESOURCE | --config CONFIG | --all",
		Short: "End a hold of this host before its time",
		Long:  "A hold that was made in the cluster is ended there: tako resume.",
		Args:  cobra.MaximumNArgs(1),
		RunE:  func(cmd *cobra.Command, args []string) error { return h.resume(cmd.Context(), args) },
	}
	h.addTo(cmd)
	return cmd
}

func (h *held) hold(ctx context.Context, args []string, x agent.Hold) error {
	state, err := h.claimed(ctx, "hold", args, &x)
	if err != nil {
		return err
	}
	if err := local.SetHold(ctx, state, x); err != nil {
		return err
	}
	fmt.Printf("✔ Held  %s until %s\nnext: tako-agent resume %s%s\n", present.Quote(heldText(x)), x.Until.Local().Format("2006-01-02 15:04:05 -0700"), h.flagsText(args), h.rootFlag())
	return nil
}

func (h *held) resume(ctx context.Context, args []string) error {
	x := agent.Hold{}
	state, err := h.claimed(ctx, "resume", args, &x)
	if err != nil {
		return err
	}
	ended, err := local.EndHolds(ctx, state, x.Config, x.Claim)
	if err != nil {
		return err
	}
	if len(ended) == 0 {
		fmt.Fprintln(os.Stderr, "nothing of it is held by this host itself")
	}
	for _, e := range ended {
		fmt.Printf("✔ Resumed  %s\n", present.Quote(heldText(e)))
	}
	return nil
}

// claimed fills in what is held, and returns the state directory. A path needs no resource.
func (h *held) claimed(ctx context.Context, verb string, args []string, x *agent.Hold) (state string, err error) {
	if state, err = h.stateDir(); err != nil {
		return "", err
	}
	x.Config = h.config
	switch {
	case len(args) == 0 && h.config == "" && !h.all, len(args)+len(h.config) > 0 && h.all:
		return "", &reason.Error{Code: reason.Usage, Doing: verb, Cause: errors.New("what is meant is not said, or twice"), Hint: "name a resource, --config or --all"}
	case len(args) == 0:
		return state, nil
	}
	a, _, err := local.WhyOf(ctx, state, args[0])
	switch {
	case err != nil && strings.HasPrefix(args[0], "/"):
		x.Claim = "path:" + args[0]
	case err != nil:
		return "", err
	case len(a.Candidates) > 0:
		return "", &reason.Error{Code: reason.ResourceUnknown, Doing: verb + " " + args[0], Cause: errors.New("several resources are called so"),
			Hint: "say which: " + strings.Join(a.Candidates, ", ")}
	default:
		x.Claim = a.Resource.Claim
	}
	return state, nil
}

// flagsText is how the same is said again.
func (h *held) flagsText(args []string) string {
	words := []string{}
	for _, arg := range args {
		words = append(words, present.Quote(arg))
	}
	if h.config != "" {
		words = append(words, "--config "+present.Quote(h.config))
	}
	if h.all {
		words = append(words, "--all")
	}
	return strings.Join(words, " ")
}

// heldText is what a hold is of.
func heldText(h agent.Hold) string {
	return cmp.Or(strings.TrimSpace(h.Config+" "+h.Claim), "everything")
}

// holdEnd is when a hold ends.
func holdEnd(until string, lasts time.Duration, now time.Time) (time.Time, error) {
	if until == "" {
		if lasts <= 0 {
			return time.Time{}, &reason.Error{Code: reason.HoldInvalid, Doing: "hold", Cause: errors.New("it has no end"), Hint: "write --for 1h, or --until 18:00"}
		}
		return now.Add(lasts).Truncate(time.Second), nil
	}
	for _, layout := range []string{time.RFC3339, "2006-01-02 15:04:05", "2006-01-02 15:04", time.DateOnly} {
		if at, err := time.ParseInLocation(layout, until, now.Location()); err == nil {
			return at, nil
		}
	}
	if at, err := time.ParseInLocation("15:04", until, now.Location()); err == nil {
		next := time.Date(now.Year(), now.Month(), now.Day(), at.Hour(), at.Minute(), 0, 0, now.Location())
		if !next.After(now) {
			next = next.AddDate(0, 0, 1)
		}
		return next, nil
	}
	return time.Time{}, &reason.Error{Code: reason.Usage, Doing: "read --until " + until, Hint: "write 18:00, '2026-12-27 08:00' or 2026-12-27T08:00:00Z"}
}

// whoami is who gives the command, for whoever finds it.
func whoami() string {
	name := fmt.Sprintf("uid %d", os.Getuid())
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	if behind := os.Getenv("SUDO_USER"); behind != "" && behind != name {
		return behind + " as " + name
	}
	return name
}

// goOn lets the running agent do what waits for a window.
func (c *common) goOn(ctx context.Context, args []string) error {
	state, err := c.stateDir()
	if err != nil {
		return err
	}
	r, err := local.GoOn(ctx, state, strings.Join(args, ""))
	if err != nil {
		return err
	}
	return c.showReport(r, true)
}
