package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tako.dev/tako/internal/agent/local"
	"tako.dev/tako/internal/agent/store"
	"tako.dev/tako/internal/present"
	"tako.dev/tako/internal/reason"
)

// historyShown is how many lines a person reads.
const historyShown = 50

func newHistory(c *common) *cobra.Command {
	limit := historyShown
	var form, since, until string
	cmd := &cobra.Command{
		Use:   "history [RESOURCE]",
		Short: "List what happened on this host, newest first",
		Long: `history lists how each resource came to be as it is: its outcome, what was changed, how long that took, and what gave
rise to it. The host keeps 7 days of it, and at most 16 MiB. It is read from the disk: no agent needs to run.`,
		Example: `  tako-agent history
  tako-agent history service/nginx --since 2h
  tako-agent history --until 2026-01-02T15:04:05Z -n 1000 -o json`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if err := c.readOutput(form, "json"); err != nil {
				return err
			}
			if limit < 0 {
				return &reason.Error{Code: reason.Usage, Doing: fmt.Sprintf("read --limit %d", limit), Hint: "it is a number from 1, or 0 for all"}
			}
			what := store.Asked{Subject: strings.Join(args, ""), Limit: limit}
			var err error
			now := time.Now()
			if what.Since, err = moment("--since", since, now); err != nil {
				return err
			}
			if what.Until, err = moment("--until", until, now); err != nil {
				return err
			}
			return c.history(what)
		},
	}
	cmd.Flags().IntVarP(&limit, "limit", "n", limit, "how many at most; 0 for all")
	cmd.Flags().StringVar(&since, "since", "", "only what is newer: 10m, 2h, or a time such as 2026-01-02T15:04:05Z")
	cmd.Flags().StringVar(&until, "until", "", "only what is older: the same")
	cmd.Flags().StringVarP(&form, "output", "o", "", "json: for programs")
	cmd.Flags().BoolVar(&c.json, "json", false, "the same as -o json")
	return cmd
}

// moment reads a time, or how long ago it was; the empty text is none.
func moment(flag, text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if at, err := time.Parse(time.RFC3339, text); err == nil {
		return at, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		return time.Time{}, &reason.Error{Code: reason.Usage, Doing: "read " + flag + " " + text, Hint: "write how long ago, such as 10m or 2h, or a time, such as 2026-01-02T15:04:05Z"}
	}
	return now.Add(-d), nil
}

func (c *common) history(what store.Asked) error {
	state, err := c.stateDir()
	if err != nil {
		return err
	}
	list, err := local.HistoryOf(state, what)
	if err != nil {
		return err
	}
	if c.json {
		if list == nil {
			list = []store.Happening{} // a list, for programs
		}
		return json.NewEncoder(os.Stdout).Encode(list)
	}
	showHistory(list, "")
	return nil
}

func showHistory(list []store.Happening, prefix string) {
	for i := range list {
		fmt.Println(prefix + happeningText(&list[i]))
	}
}

// happeningText is one happening on one line.
func happeningText(h *store.Happening) string {
	shown := present.Happening{
		At: h.At, Title: h.Title, Outcome: h.Outcome, Detail: h.Detail, Changes: h.Changes, Message: h.Message, Writer: h.Writer, Cause: h.Cause,
		Took: time.Duration(h.Took) * time.Microsecond,
	}
	return shown.Line("2006-01-02 15:04:05.000", present.Style{})
}
