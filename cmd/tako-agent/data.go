package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"tako.dev/tako/internal/agent/lookup"
	"tako.dev/tako/internal/present"
	"tako.dev/tako/internal/reason"
)

// How many keys are listed at once: what a person reads, and what a program may ask for.
const (
	keysShown = 1000
	keysMax   = 100_000
)

// dataFlags are what the commands about data are told.
type dataFlags struct {
	*common
	files []string
}

func newData(c *common) *cobra.Command {
	f := &dataFlags{common: c}
	cmd := &cobra.Command{
		Use:   "data",
		Short: "Look up the data that is declared for this host",
		Long: `Data is delivered to the host and not acted upon: resources of the type data, and bundles. It is looked up in the state that
is enforced, whether or not the agent runs; with -f, in declaration files. Of several configs that have a key, the one of the
highest priority counts.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.PersistentFlags().StringArrayVarP(&f.files, "file", "f", nil, "declaration file, or directory of them; may be repeated")
	cmd.PersistentFlags().BoolVar(&c.json, "json", false, "write JSON")
	cmd.AddCommand(f.newGet(), f.newList())
	return cmd
}

func (f *dataFlags) in() (lookup.In, error) {
	state, err := f.stateDir()
	return lookup.In{StateDir: state, Files: f.files}, err
}

func (f *dataFlags) newGet() *cobra.Command {
	return &cobra.Command{
		Use:   "get KEY",
		Short: "Write the value of a key",
		Example: `  tako-agent data get users/alice/quota
  tako-agent data get tls/ca.der > ca.der
  tako-agent data get users/alice/quota --json`,
		Long: "The value is written as it is, byte by byte, and nothing after it. The exit code is 7 where nothing has that key.",
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			in, err := f.in()
			if err != nil {
				return err
			}
			d, err := in.Get(args[0])
			if err != nil {
				return err
			}
			if f.json {
				return json.NewEncoder(os.Stdout).Encode(struct {
					Key    string `json:"key"`
					Value  string `json:"value,omitempty"`
					Base64 string `json:"base64,omitempty"`
					Config string `json:"config"`
				}{d.Key, d.Value, d.Base64, d.Config})
			}
			_, err = os.Stdout.Write(d.Bytes())
			return err
		},
	}
}

func (f *dataFlags) newList() *cobra.Command {
	after, limit := "", keysShown
	cmd := &cobra.Command{
		Use:   "list [PREFIX]",
		Short: "List keys",
		Example: `  tako-agent data list
  tako-agent data list users/ --after users/alice/quota`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if limit < 1 || limit > keysMax {
				return &reason.Error{Code: reason.Usage, Doing: fmt.Sprintf("read --limit %d", limit), Hint: fmt.Sprintf("it is a number from 1 to %d", keysMax)}
			}
			in, err := f.in()
			if err != nil {
				return err
			}
			keys, err := in.List(strings.Join(args, ""), after, limit+1)
			if err != nil {
				return err
			}
			return f.showKeys(keys, limit)
		},
	}
	cmd.Flags().StringVar(&after, "after", "", "go on after this key")
	cmd.Flags().IntVarP(&limit, "limit", "n", limit, "how many at most")
	return cmd
}

// showKeys shows so many keys, and where to go on if there are more.
func (f *dataFlags) showKeys(keys []string, limit int) error {
	next := ""
	if len(keys) > limit {
		keys = keys[:limit]
		next = keys[limit-1]
	}
	if f.json {
		if keys == nil {
			keys = []string{} // a list, for programs
		}
		return json.NewEncoder(os.Stdout).Encode(struct {
			Keys []string `json:"keys"`
			Next string   `json:"next,omitempty"` // what --after is to be for those that follow
		}{keys, next})
	}
	for _, key := range keys {
		fmt.Println(present.Escape(key))
	}
	if next != "" {
		fmt.Fprintf(os.Stderr, "there are more: --after %s\n", present.Quote(next))
	}
	return nil
}
