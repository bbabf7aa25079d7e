package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/internal/cli/failure"
	"tako.dev/tako/internal/cli/fleet"
	"tako.dev/tako/internal/cli/remote"
	"tako.dev/tako/internal/cli/selection"
	"tako.dev/tako/internal/cli/workloads"
	"tako.dev/tako/internal/reason"
)

type statusFlags struct {
	output  string
	watch   bool
	timeout time.Duration
}

func (p *program) newStatus() *cobra.Command {
	f := &statusFlags{}
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the fleet on one page: what is as declared, and what needs attention",
		Example: `  tako status              all environments
  tako status -n prod      configs of one environment
  tako status -w           and what becomes of it, until Ctrl-C
  tako status -o json      for programs`,
		Long: `The exit code is 0 when nothing needs attention and 1 otherwise. With -w it is 0: on a terminal the
page is drawn again when something changes, elsewhere lines are added to it that say what has changed, and
with -o ndjson each page is a line.`,
		Args: taking(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return p.status(cmd.Context(), f) },
	}
	cmd.Flags().StringVarP(&f.output, "output", "o", "", "json or ndjson: for programs")
	complete(cmd, "output", "json", "ndjson")
	cmd.Flags().BoolVarP(&f.watch, "watch", "w", false, "go on showing what changes")
	cmd.Flags().DurationVar(&f.timeout, "timeout", 0, "with -w: end after this time, with exit code 0 (default never)")
	return cmd
}

// addJSON gives a command that writes a text the choice of JSON.
func addJSON(cmd *cobra.Command, form *string) {
	cmd.Flags().StringVarP(form, "output", "o", "", "json: for programs")
	complete(cmd, "output", "json")
}

func checkJSON(form string) error {
	if form == "" || form == "json" {
		return nil
	}
	return failure.Usage("read -o "+form, "this is written as text or json", "")
}

func (p *program) status(ctx context.Context, f *statusFlags) error {
	if f.output == "ndjson" {
		f.output = "json" // a page is one line
	}
	if err := checkJSON(f.output); err != nil {
		return err
	}
	server, home, err := p.connect()
	if err != nil {
		return err
	}
	if f.watch {
		return p.watchStatus(ctx, server, home, f)
	}
	all, err := fleet.Read(ctx, server, p.flags.Namespace, home)
	if err != nil {
		return err
	}
	if err := all.CheckNamespace(ctx, server, p.flags.Namespace); err != nil {
		return err
	}
	s := page(all)
	if err := p.write(f.output, s, func() string { return s.Text(time.Now(), p.style()) }); err != nil {
		return err
	}
	if !s.Healthy() {
		return ended{reason.ExitFailed}
	}
	return nil
}

// page sums the fleet up.
func page(all *fleet.Fleet) *fleet.Status {
	now := time.Now()
	return all.Status(func(w *v1alpha1.Workload) []fleet.Finding { return workloads.FindingsOf(w, now) })
}

// write writes a value for a program or its text for a person.
func (p *program) write(form string, value any, text func() string) error {
	if form == "json" {
		return json.NewEncoder(p.Out).Encode(value)
	}
	_, err := io.WriteString(p.Out, text())
	return err
}

func (p *program) newWhy() *cobra.Command {
	var form, onNode string
	var graph bool
	cmd := &cobra.Command{
		Use:   "why KIND/NAME | RESOURCE --node NODE | node/NAME --graph [RESOURCE]",
		Short: "Say why something is as it is, and what helps",
		Example: `  tako why node/web-7                     why the host is not as declared
  tako why nodeconfig/web -n prod         why a config is not everywhere
  tako why revision/web-1f2e3d4c5b        where a revision is, and where not
  tako why workload/web -n prod           why its instances are not as declared, or have no node
  tako why instance/web-3 -n prod         why one instance does not work
  tako why source/fleet -n prod           why the newest commit is not applied
  tako why secret/web-tls -n prod         which hosts have its values, and which have had them
  tako why service/nginx --node web-7     why one resource is as it is: the host itself is asked
  tako why node/web-7 --graph             the order of its resources, with the reason of each
  tako why node/web-7 --graph service/nginx           what that waits for, and what waits for it
  tako why node/web-7 --graph -o dot | dot -Tsvg      drawn by Graphviz`,
		Args:              taking(cobra.RangeArgs(1, 2)),
		ValidArgsFunction: p.completeObjects,
		RunE: func(cmd *cobra.Command, args []string) error {
			if graph {
				return p.whyGraph(cmd.Context(), args, onNode, form)
			}
			if len(args) > 1 {
				return failure.Usage("read the arguments", "two things at once", "tako why tells of one; beside a host a resource stands with --graph")
			}
			if err := checkJSON(form); err != nil {
				return err
			}
			if onNode != "" {
				q := question{what: v1alpha1.NodeEvidence, subject: args[0]}
				return p.evidence(cmd.Context(), strings.TrimPrefix(onNode, "node/"), q, form)
			}
			return p.why(cmd.Context(), args, form)
		},
	}
	cmd.Flags().StringVar(&onNode, "node", "", "ask this host about a resource, TYPE/NAME or what it claims")
	_ = cmd.RegisterFlagCompletionFunc("node", p.completeNodes)
	cmd.Flags().BoolVar(&graph, "graph", false, "ask a host for the order of its resources")
	cmd.Flags().StringVarP(&form, "output", "o", "", "json, or of a graph dot: for programs")
	complete(cmd, "output", "json", "dot")
	return cmd
}

// whyGraph reads the arguments of why --graph: node/NAME and maybe a resource, or a resource and --node.
func (p *program) whyGraph(ctx context.Context, args []string, node, form string) error {
	if form != "" && form != "json" && form != "dot" {
		return failure.Usage("read -o "+form, "a graph is written as text, json or dot", "")
	}
	if node == "" {
		if kind, _, _ := strings.Cut(args[0], "/"); fleet.IsResource(kind) {
			return failure.Usage("why "+args[0], "resources are on hosts", "write tako why node/NAME --graph "+args[0])
		}
		name, err := nodeArgument(args[0])
		if err != nil {
			return err
		}
		node, args = name, args[1:]
	}
	if len(args) > 1 {
		return failure.Usage("read the arguments", "two resources at once", "write one resource")
	}
	return p.graph(ctx, strings.TrimPrefix(node, "node/"), strings.Join(args, ""), form)
}

func (p *program) completeNodes(cmd *cobra.Command, _ []string, start string) ([]string, cobra.ShellCompDirective) {
	return p.offer(cmd.Context(), func(ctx context.Context, server *remote.Server, _ string) ([]string, error) {
		return selection.Names(ctx, server, "", v1alpha1.ResourceNodes, start)
	})
}

func (p *program) why(ctx context.Context, args []string, form string) error {
	server, namespace, err := p.connect()
	if err != nil {
		return err
	}
	if kind, name, ok := strings.Cut(args[0], "/"); ok && fleet.IsResource(kind) {
		return failure.Usage("why "+args[0], "resources are on hosts", "write tako why "+kind+"/"+name+" --node NODE")
	}
	ref, err := selection.Single(ctx, server, namespace, args, "KIND/NAME")
	if err != nil {
		return err
	}
	title, found, err := p.found(ctx, server, ref)
	if err != nil {
		return err
	}
	if found == nil {
		found = []fleet.Finding{} // a list, for programs
	}
	return p.write(form, struct {
		Subject  string          `json:"subject"`
		Findings []fleet.Finding `json:"findings"`
	}{ref.String(), found}, func() string { return fleet.Explain(title, found, time.Now(), p.style()) })
}

// found is what is to be said of an object, with what hosts themselves say of it.
func (p *program) found(ctx context.Context, server *remote.Server, ref remote.Ref) (string, []fleet.Finding, error) {
	if title, found, is, err := workloads.About(ctx, server, ref, time.Now()); is || err != nil {
		return title, found, err
	}
	all, err := fleet.Read(ctx, server, "", ref.Namespace)
	if err != nil {
		return "", nil, err
	}
	title, found, err := p.about(ctx, server, all, ref)
	if err != nil {
		return "", nil, err
	}
	if ref.Kind.Kind == v1alpha1.KindNode {
		there, err := workloads.OnNode(ctx, server, ref.Name)
		if err != nil {
			return "", nil, err
		}
		found = append(found, there...)
	}
	if c := all.ConfigOf(ref); c != nil {
		fleet.NameValues(ctx, server, c, found, time.Now())
	}
	p.quote(ctx, found)
	return title, found, nil
}

// about finds what is to be said of an object. Of the Secrets not all are read with the fleet.
func (p *program) about(ctx context.Context, server *remote.Server, all *fleet.Fleet, ref remote.Ref) (string, []fleet.Finding, error) {
	if ref.Kind.Kind != "Secret" {
		return all.About(ref)
	}
	object, err := server.Get(ctx, ref)
	if err != nil {
		return "", nil, failure.Of(err, "read "+ref.String())
	}
	s := fleet.SecretOf(object)
	return s.Argument(), all.OfSecret(&s), nil
}

// question is what is asked of a host.
type question struct {
	what    string // subresource of the node
	subject string
	lines   int
	since   string
	until   string
	// previous asks for the attempt before the newest one, of an instance.
	previous bool
}

// ask sends a question to a host, and its answer to w as it comes.
func (p *program) ask(ctx context.Context, node string, q question, w io.Writer) error {
	server, _, err := p.connect()
	if err != nil {
		return err
	}
	kind, err := server.Find(ctx, v1alpha1.ResourceNodes+"."+v1alpha1.GroupName)
	if err != nil {
		return failure.Of(err, "ask which kinds there are")
	}
	query := map[string]string{}
	for key, value := range map[string]string{"subject": q.subject, "since": q.since, "until": q.until} {
		if value != "" {
			query[key] = value
		}
	}
	if q.previous {
		query["previous"] = "true"
	}
	if q.lines > 0 {
		query["lines"] = fmt.Sprint(q.lines)
	}
	answer, err := server.Stream(ctx, remote.Ref{Kind: kind, Name: node}, q.what, query)
	if err != nil {
		return failure.Of(err, "") // the server says whom it has asked
	}
	defer answer.Close()
	if _, err = io.Copy(w, answer); err != nil {
		return failure.Of(err, "read the answer of node "+node)
	}
	return nil
}

const (
	// quotesMax is how many resources hosts are asked about for one answer: what is broken first is what a person looks at.
	quotesMax = 3
	// quotePatience is how long such an answer is waited for: the rest is there already.
	quotePatience = 5 * time.Second
)

// quote asks hosts for the evidence of what is broken there. What they do not tell is left out.
func (p *program) quote(ctx context.Context, found []fleet.Finding) {
	ctx, cancel := context.WithTimeout(ctx, quotePatience)
	defer cancel()
	asked := 0
	for i := range found {
		x := &found[i]
		if x.Claim == "" || x.Weight != fleet.Broken || asked == quotesMax {
			continue
		}
		asked++
		if a, err := p.explained(ctx, x.Node, question{what: v1alpha1.NodeEvidence, subject: x.Claim}); err == nil && a.Resource.Problem != nil {
			x.Evidence = a.Resource.Problem.Evidence
		}
	}
}
