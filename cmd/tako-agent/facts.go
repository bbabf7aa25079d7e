package main

import (
	"encoding/json"
	"fmt"
	"os"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/host/all"
	"tako.dev/tako/internal/present"
	"tako.dev/tako/internal/reason"
)

func newFacts(c *common) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "facts",
		Short: "List what this host observes of itself",
		Long: "Facts lists the names that `when` and $( ) can use, with what they stand for on this host. Files of " + declare.OwnFactsDir +
			"\nthat are refused are told; the exit code is 1 then.",
		Example: `  tako-agent facts
  tako-agent facts --json`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			_, host, err := c.host(true, "never")
			if err != nil {
				return err
			}
			defer host.Close() // nothing was written
			return c.showFacts(host)
		},
	}
	cmd.Flags().BoolVar(&c.json, "json", false, "write JSON")
	return cmd
}

// refusedFacts is a file that gives no facts, in JSON.
type refusedFacts struct {
	Code    string `json:"code"`
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"`
}

func (c *common) showFacts(host *all.Host) error {
	known, refused, err := host.Facts()
	if err != nil {
		refused = append(refused, err) // the rest of the facts is good
	}
	names := known.Names()
	if c.json {
		out := struct {
			Facts   map[string]any `json:"facts"`
			Refused []refusedFacts `json:"refused,omitempty"`
		}{Facts: make(map[string]any, len(names))}
		for _, name := range names {
			out.Facts[name], _ = known.Get(name)
		}
		for _, e := range refused {
			coded := reason.Of(e)
			out.Refused = append(out.Refused, refusedFacts{Code: coded.Code.String(), Message: coded.Error(), Hint: coded.Hint})
		}
		encoder := json.NewEncoder(os.Stdout)
		encoder.SetIndent("", "  ")
		err = encoder.Encode(out)
	} else {
		w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
		for _, name := range names {
			x, _ := known.Get(name)
			value, _ := declare.ValueOf(x)
			fmt.Fprintf(w, "%s\t%s\n", name, present.Escape(value.String()))
		}
		err = w.Flush()
		for _, e := range refused {
			coded := reason.Of(e)
			_ = present.Error(os.Stderr, coded.Code, coded.Error(), coded.Hint, c.style(os.Stderr)) // there is nobody else to tell
		}
	}
	if err != nil {
		return &reason.Error{Code: reason.SystemCallFailed, Doing: "write the facts", Cause: err}
	}
	if len(refused) > 0 {
		return shown{reason.ExitFailed}
	}
	return nil
}
