package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/internal/cli/answer"
	"tako.dev/tako/internal/cli/failure"
	"tako.dev/tako/internal/cli/fleet"
	"tako.dev/tako/internal/cli/output"
	"tako.dev/tako/internal/cli/plan"
	"tako.dev/tako/internal/cli/remote"
	"tako.dev/tako/internal/present"
	"tako.dev/tako/internal/reason"
)

type adoptFlags struct {
	node   string
	dryRun string
}

func (p *program) newAdopt() *cobra.Command {
	f := &adoptFlags{}
	cmd := &cobra.Command{
		Use:   "adopt RESOURCE --node NAME",
		Short: "Declare what stands on a host: its change becomes everybody's",
		Example: `  tako hold node/web-7 --resource path:/etc/motd --reason 'trying a text' --for 1h
  tako why file/motd --node web-7                    how it differs from what is declared
  tako adopt file/motd --node web-7 --dry-run=server what would be declared
  tako adopt file/motd --node web-7
  tako resume node/web-7`,
		Long: `The host is asked how a resource differs from what is declared, and the content, mode, owner or target of a file,
directory or symlink, the state of a service, the shell or home of a user, the value of a sysctl, the host name or
time zone that is there is written into the config that declares it. The other hosts get it by the rollout of that
config. Without a hold the agent has mostly put back what you want to adopt.

What not everybody on the host may read, what comes from a Secret or ConfigMap, and what is another text on
each host is not adopted. Take the change over into your own files too (tako get nodeconfig/NAME -o yaml): the next apply of them
declares what they say.`,
		Args: taking(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error { return p.adopt(cmd.Context(), f, args[0]) },
	}
	cmd.Flags().StringVar(&f.node, "node", "", "the host, NAME or node/NAME")
	cmd.Flags().StringVar(&f.dryRun, "dry-run", "none", "none, or server: show the difference and change nothing")
	complete(cmd, "dry-run", "none", "server")
	_ = cmd.RegisterFlagCompletionFunc("node", p.completeNodes) // the flag is there
	_ = cmd.MarkFlagRequired("node")
	return cmd
}

func (p *program) adopt(ctx context.Context, f *adoptFlags, subject string) error {
	if f.dryRun != "none" && f.dryRun != "server" {
		return failure.Usage("read --dry-run="+f.dryRun, "it is none or server", "")
	}
	node := strings.TrimPrefix(f.node, "node/")
	server, _, err := p.connect()
	if err != nil {
		return err
	}
	d, err := p.newestDifference(ctx, server, node, subject)
	if err != nil {
		return err
	}
	a, doing, config, before := d.Answer, d.doing, d.config, d.before
	after := output.Declared(before)
	fields, err := a.Adopt(after)
	var refusal *answer.Refusal
	if errors.As(err, &refusal) {
		return failure.Stalled(doing, refusal.Words, refusal.Hint)
	}
	if len(fields) == 0 {
		p.say(fmt.Sprintf("%s unchanged: %s is on node/%s as it is declared", config, a.Resource.Title, node))
		return nil
	}
	dryRun := f.dryRun == "server"
	if after, err = fleet.Declare(ctx, server, config, before, after, dryRun); err != nil {
		return failure.Of(err, doing)
	}
	if dryRun {
		return p.showEdit(config, before, after)
	}
	if _, err := fmt.Fprintf(p.Out, "%s declares the %s of %s as on node/%s\n", config, strings.Join(fields, ", "), a.Resource.Title, node); err != nil {
		return err
	}
	if a.Resource.Detail == string(reason.Held) {
		p.say(fmt.Sprintf("it is still held: tako resume node/%s --resource %s", node, a.Resource.Claim))
	}
	return nil
}

// adoptPatience is how long a host may take to get what its config declares now: an edit of a moment ago, such as another adoption, is there within a
// second where the rollout does not hold it back.
const adoptPatience = 10 * time.Second

// difference is how a resource on a host differs from what is declared.
type difference struct {
	*answer.Answer
	doing  string
	config remote.Ref
	before *unstructured.Unstructured // the config
}

// newestDifference asks a host for one against the newest of its config.
func (p *program) newestDifference(ctx context.Context, server *remote.Server, node, subject string) (d difference, err error) {
	const pause = 250 * time.Millisecond
	for end := time.Now().Add(adoptPatience); ; {
		if d.Answer, err = p.explained(ctx, node, question{what: v1alpha1.NodeEvidence, subject: subject}); err != nil {
			return d, err
		}
		d.doing = fmt.Sprintf("adopt %s of node %s", d.Resource.Title, node)
		if d.config, err = fleet.Declaring(ctx, server, d.Resource.Config); err != nil {
			return d, failure.Of(err, d.doing)
		}
		if d.before, err = server.Get(ctx, d.config); err != nil {
			return d, failure.Of(err, d.doing)
		}
		switch newest, err := fleet.HasNewest(ctx, server, node, d.Resource.Config, d.before); {
		case err != nil:
			return d, failure.Of(err, d.doing)
		case newest:
			return d, nil
		}
		select {
		case <-ctx.Done():
			return d, failure.Of(ctx.Err(), d.doing)
		case <-time.After(pause):
		}
		if time.Now().After(end) {
			return d, failure.Stalled(d.doing, "the host does not have what the config declares now", "tako why "+d.config.Argument())
		}
	}
}

func (p *program) showEdit(ref remote.Ref, before, after *unstructured.Unstructured) error {
	text, err := plan.DiffOfEdit(ref, before, after)
	if err != nil {
		return err
	}
	return present.WriteDiff(p.Out, text, p.style())
}
