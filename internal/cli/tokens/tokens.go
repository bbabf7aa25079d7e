// Package tokens makes tokens, with which hosts and relays join and people work, and shows each once.
package tokens

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/internal/cli/failure"
	"tako.dev/tako/internal/cli/output"
	"tako.dev/tako/internal/cli/remote"
	"tako.dev/tako/internal/cli/until"
	"tako.dev/tako/internal/trust"
)

// Shell is what the command has of the program that it is in.
type Shell struct {
	Out     io.Writer
	Connect func() (server *remote.Server, namespace string, err error)
	// Say tells a person what is no result.
	Say func(text string)
}

// NewCreate returns the command, which has one below it for each type of token.
func (s *Shell) NewCreate() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "create",
		Short: "Make a token and print it, this once",
		Example: `  tako token create join --environment web --pattern 'web-*' --count 10 --expires 1h
  tako token create user ann --group operators --expires 30d
  tako token create relay edge-1`,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(s.newJoin(), s.newRelay(), s.newUser())
	return cmd
}

// flags are those that both types of tokens have.
type flags struct {
	id      string
	expires until.Lifetime
	output  string
	address string // that stands in the line instead of the server's; empty: the server's
	joins   string // who joins with the line, and how
}

func (f *flags) addTo(cmd *cobra.Command, expires time.Duration) {
	cmd.Flags().StringVar(&f.id, "id", "", "name of the Token object, which is no secret (default made up)")
	f.expires = until.Lifetime{Duration: expires}
	cmd.Flags().Var(&f.expires, "expires", "how long the token is good for, such as 90m or 30d; never means until it is revoked")
	cmd.Flags().StringVarP(&f.output, "output", "o", "", "json: the whole Token object, with the token in status.token, and what a host joins with in status.joinLine")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"json"}, cobra.ShellCompDirectiveNoFileComp)) // the flag is there
}

func (s *Shell) newJoin() *cobra.Command {
	f := &flags{joins: "a host joins with `tako-agent join -`"}
	join := &v1alpha1.JoinToken{}
	count := int32(1)
	cmd := &cobra.Command{
		Use:   "join",
		Short: "Make a token with which hosts join, and print the line that tako-agent join takes",
		Example: `  tako token create join --environment web --name web-7
  tako token create join --environment web --pattern 'web-*' --count 10 --label rack=r1 --expires 1h`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().Changed("count") {
				join.Count = &count
			}
			return s.create(cmd.Context(), "join", v1alpha1.TokenSpec{Type: v1alpha1.TokenJoin, Join: join}, f)
		},
	}
	cmd.Flags().StringVar(&join.Environment, "environment", "", "environment of the hosts")
	cmd.Flags().StringToStringVar(&join.Labels, "label", nil, "label of the hosts, key=value; may be repeated")
	cmd.Flags().Int32Var(&count, "count", 1, "how many hosts may join")
	cmd.Flags().StringVar(&join.Name, "name", "", "the one name that may join")
	cmd.Flags().StringVar(&join.Pattern, "pattern", "", "what names must look like, such as web-*")
	cmd.Flags().StringVar(&f.address, "through", "", "HOST:PORT of a relay, for hosts that reach no server: the line leads to it")
	f.addTo(cmd, time.Hour)
	return cmd
}

func (s *Shell) newRelay() *cobra.Command {
	f := &flags{joins: "a relay joins with `tako relay join -`"}
	cmd := &cobra.Command{
		Use:   "relay NAME",
		Short: "Make a token with which a relay joins, and print the line that tako relay join takes",
		Long: `relay makes a token for one relay, which is called as the token then. "tako token list" shows which relays
there are, and "tako token revoke NAME" removes one.`,
		Example: `  tako token create relay edge-1 | ssh edge-1 runuser -u tako -- tako relay join -`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.id != "" {
				return failure.Usage("read --id", "the token of a relay is called as the relay", "leave --id out")
			}
			f.id = args[0]
			return s.create(cmd.Context(), f.id, v1alpha1.TokenSpec{Type: v1alpha1.TokenJoin, Join: &v1alpha1.JoinToken{Relay: true}}, f)
		},
	}
	f.addTo(cmd, time.Hour)
	return cmd
}

func (s *Shell) newUser() *cobra.Command {
	f := &flags{}
	user := &v1alpha1.UserToken{}
	cmd := &cobra.Command{
		Use:   "user NAME",
		Short: "Make a token with which a person or program works",
		Example: `  tako token create user ann --group operators
  tako token create user ci --group deployers --expires never`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			user.Name = args[0]
			return s.create(cmd.Context(), idStart(user.Name), v1alpha1.TokenSpec{Type: v1alpha1.TokenUser, User: user}, f)
		},
	}
	const month = 30 * 24 * time.Hour // long enough not to annoy, short enough that a forgotten one ends
	cmd.Flags().StringSliceVar(&user.Groups, "group", nil, "group of the user; may be repeated")
	f.addTo(cmd, month)
	return cmd
}

// idStart makes a name what the name of an object can begin with.
func idStart(name string) string {
	start := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, strings.ToLower(name))
	const most = 40 // far below what a name may have
	if start = strings.Trim(start[:min(len(start), most)], "-"); start == "" {
		return "user"
	}
	return start
}

func (s *Shell) create(ctx context.Context, start string, spec v1alpha1.TokenSpec, f *flags) error {
	if f.output != "" && f.output != "json" {
		return failure.Usage("read -o "+f.output, "a token is written as text or json", "")
	}
	if f.address != "" {
		if err := trust.CheckAddress(f.address); err != nil {
			return failure.Usage("read --through "+f.address, err.Error(), "write HOST:PORT of the relay, as its hosts reach it")
		}
	}
	token := v1alpha1.Token{TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: v1alpha1.KindToken}, Spec: spec}
	if token.Name = f.id; token.Name == "" {
		token.Name = start + "-" + strings.ToLower(rand.Text()[:5])
	}
	if f.expires.Duration > 0 {
		end := metav1.NewTime(time.Now().Add(f.expires.Duration).Truncate(time.Second))
		token.Spec.Expires = &end
	}
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&token)
	if err != nil {
		return fmt.Errorf("write the token: %w", err)
	}
	server, _, err := s.Connect()
	if err != nil {
		return err
	}
	kind, err := kindOf(ctx, server)
	if err != nil {
		return err
	}
	made, err := server.Create(ctx, kind, &unstructured.Unstructured{Object: fields})
	if err != nil {
		return failure.Of(err, "make token "+token.Name)
	}
	return s.show(made, f)
}

// readdress has a line lead to another address than the server's own.
func readdress(made *unstructured.Unstructured, address string) error {
	text, _, _ := unstructured.NestedString(made.Object, "status", "joinLine")
	if address == "" || text == "" {
		return nil
	}
	line, err := trust.ParseJoinLine(text)
	if err != nil {
		return failure.Of(err, "read the line of token "+made.GetName())
	}
	line.Address = address
	return unstructured.SetNestedField(made.Object, line.Reveal(), "status", "joinLine")
}

// show writes the secret, which nobody can ask for again.
func (s *Shell) show(made *unstructured.Unstructured, f *flags) error {
	if err := readdress(made, f.address); err != nil {
		return err
	}
	if f.output == "json" {
		encoder := json.NewEncoder(s.Out)
		encoder.SetIndent("", "  ")
		return encoder.Encode(output.Clean(made).Object)
	}
	secret, _, _ := unstructured.NestedString(made.Object, "status", "token")
	if secret == "" {
		return failure.NotFound("make token "+made.GetName(), "the server has made it and not said it", "tako token revoke "+made.GetName())
	}
	until := "until it is revoked"
	if end, ok, _ := unstructured.NestedString(made.Object, "spec", "expires"); ok {
		until = "until " + end
	}
	if line, _, _ := unstructured.NestedString(made.Object, "status", "joinLine"); line != "" {
		s.Say(fmt.Sprintf("token %s, good %s; %s and this line, which is shown this once:", made.GetName(), until, f.joins))
		secret = line
	} else {
		s.Say(fmt.Sprintf("token %s, good %s; it is shown this once:", made.GetName(), until))
	}
	_, err := io.WriteString(s.Out, secret+"\n")
	return err
}

func kindOf(ctx context.Context, server *remote.Server) (remote.Kind, error) {
	kind, err := server.KindOf(ctx, v1alpha1.SchemeGroupVersion.WithKind(v1alpha1.KindToken))
	if err != nil {
		return kind, failure.Of(err, "ask which kinds there are")
	}
	return kind, nil
}
