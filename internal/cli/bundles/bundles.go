// Package bundles is what `tako bundle` does: it puts lists of entries on the server, for configs to name by their digest.
//
//	files -> entries: of each where it stands, its key and its digest -> trie -> digest of the bundle
//	trie of the bundle that was pushed before -> what differs -> pieces -> server
//
// Memory is at most some 500 bytes for each entry, whatever their values are. It owns no goroutine.
package bundles

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/internal/bundle"
	"tako.dev/tako/internal/cli/failure"
	"tako.dev/tako/internal/cli/remote"
)

// manager is who owns spec.bundle where a push has set it.
const manager = "tako-bundle"

// Shell is what the commands need of the command line that they are part of.
type Shell struct {
	Out, Err io.Writer
	Connect  func() (server *remote.Server, namespace string, err error)
}

// New returns the command with those below it.
func (s *Shell) New() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "bundle",
		Short:   "Put long lists of data on the server, for configs to name",
		Example: "  tako bundle push quotas.jsonl --set nodeconfig/quotas",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(s.newPush())
	return cmd
}

// flags are what push is told.
type flags struct {
	output  string
	set     string
	cluster bool
	whole   bool
}

func (s *Shell) newPush() *cobra.Command {
	f := &flags{}
	cmd := &cobra.Command{
		Use:   "push FILE|DIR...",
		Short: "Put a list of data on the server, and print how a config names it",
		Example: `  tako bundle push quotas.jsonl
  tako bundle push data/ -n prod --set nodeconfig/quotas
  tako bundle push data/ -o json`,
		Long: `A bundle is a list of data: values that hosts get and do not act upon, up to 2,000,000 of them and 1 GiB. A *.jsonl file has one on
each line, {"key": "users/alice/quota", "value": "10G"} or with base64 in the place of value; of *.yaml, *.yml and *.json files
the resources are taken, which must all be of the type data.

What the server has of it already is not sent, and an upload that broke off goes on where it was. The bundle is named by what is in it;
what no config has named for 30 days goes by itself. It takes who may update NodeConfigs in the namespace, or with --cluster
ClusterNodeConfigs. It is stored on the server that is talked to; where there are several, push it to each.

It is no place for secrets: who may read the hosts' data as root, or write a config, sees all of it.`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return s.push(cmd.Context(), args, f) },
	}
	cmd.Flags().StringVarP(&f.output, "output", "o", "", "json: for programs")
	cmd.Flags().StringVar(&f.set, "set", "", "the config that is to name it: nodeconfig/NAME or clusternodeconfig/NAME")
	cmd.Flags().BoolVar(&f.cluster, "cluster", false, "it is for ClusterNodeConfigs")
	cmd.Flags().BoolVar(&f.whole, "whole", false, "send all of it, whatever the server has")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"json"}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// pushed is what a push has come to.
type pushed struct {
	Digest  string `json:"digest"`
	Entries int    `json:"entries"`
	Bytes   int64  `json:"bytes"`
	Moved   moved  `json:"moved"`
}

func (s *Shell) push(ctx context.Context, paths []string, f *flags) (err error) {
	if f.output != "" && f.output != "json" {
		return failure.Usage("read -o "+f.output, "this is written as text or json", "")
	}
	kind, name, err := f.config()
	if err != nil {
		return err
	}
	l, err := read(ctx, paths)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.close()) }()
	server, namespace, err := s.Connect()
	if err != nil {
		return err
	}
	if f.cluster || kind == v1alpha1.KindClusterNodeConfig {
		namespace = ""
	}
	p := push{server: server, namespace: namespace, list: l, trie: l.trie(), told: s.tell()}
	m, err := p.run(ctx, f.whole)
	if err != nil {
		return failure.Of(err, "push "+strings.Join(paths, " "))
	}
	digest := bundle.Digest(p.trie.Root())
	if kind != "" {
		if err := s.set(ctx, server, kind, namespace, name, digest); err != nil {
			return err
		}
	}
	if f.output == "json" {
		return json.NewEncoder(s.Out).Encode(pushed{digest, len(l.entries), l.bytes, m})
	}
	_, err = fmt.Fprintf(s.Out, "✔ Pushed  %d entries, %d bytes; moved %d changes, %d bytes\n", len(l.entries), l.bytes, m.Changes, m.Bytes)
	if err == nil && kind != "" {
		_, err = fmt.Fprintf(s.Out, "%s names it\n", f.set)
	}
	if err == nil {
		_, err = fmt.Fprintf(s.Out, "bundle: {digest: %q}\n", digest)
	}
	return err
}

// config reads which config is to name the bundle.
func (f *flags) config() (kind, name string, err error) {
	if f.set == "" {
		return "", "", nil
	}
	word, name, _ := strings.Cut(f.set, "/")
	for _, kind := range []string{v1alpha1.KindNodeConfig, v1alpha1.KindClusterNodeConfig} {
		if strings.EqualFold(word, kind) && name != "" {
			if f.cluster && kind == v1alpha1.KindNodeConfig {
				return "", "", failure.Usage("read --set "+f.set, "a NodeConfig is in a namespace", "leave out --cluster")
			}
			return kind, name, nil
		}
	}
	return "", "", failure.Usage("read --set "+f.set, "it is no config", "write nodeconfig/NAME or clusternodeconfig/NAME")
}

// set makes a config name the bundle.
func (s *Shell) set(ctx context.Context, server *remote.Server, kind, namespace, name, digest string) error {
	doing := "set the bundle of " + kind + " " + name
	of, err := server.KindOf(ctx, v1alpha1.SchemeGroupVersion.WithKind(kind))
	if err != nil {
		return failure.Of(err, doing)
	}
	changes := map[string]any{"spec": map[string]any{"bundle": map[string]any{"digest": digest}}}
	_, err = server.Patch(ctx, remote.Ref{Kind: of, Namespace: namespace, Name: name}, changes, manager)
	if e := failure.Of(err, doing); e != nil {
		return e
	}
	return nil
}

// tell lets a person who waits see that it goes on.
func (s *Shell) tell() func(done, all int64) {
	const much = 64 << 20
	return func(done, all int64) {
		if all > much && done > 0 {
			fmt.Fprintf(s.Err, "%d of %d MiB\n", done>>20, all>>20)
		}
	}
}
