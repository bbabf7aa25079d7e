// Package contents is what `tako content` does: it stores files on the server, for hosts to fetch by their digest. It owns no goroutine.
package contents

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/cli/failure"
	"tako.dev/tako/internal/cli/remote"
	"tako.dev/tako/internal/content"
)

// Shell is what the commands need of the command line that they are part of.
type Shell struct {
	Out, Err io.Writer
	Connect  func() (*remote.Server, string, error)
}

// New returns the command with those below it.
func (s *Shell) New() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "content",
		Short:   "Store files that are too large for a declaration, or no text",
		Example: "  tako content put grafana-11.tar.gz",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(s.newPut())
	return cmd
}

func (s *Shell) newPut() *cobra.Command {
	format := ""
	cmd := &cobra.Command{
		Use:   "put FILE",
		Short: "Store a file on the server, and print how a declaration names it",
		Example: `  tako content put collector
  tako content put grafana-11.tar.gz -o json`,
		Long: `The file is stored by what is in it, so putting it again does nothing, and an upload that broke off goes on where it was.
It may have up to 1 GiB. Hosts fetch it when a declaration that is for them names it. What no declaration has named for 30 days
goes by itself.

It is stored on the server that is talked to; where there are several, put it on each. It is no place for secrets: who may write a
declaration can have it brought to a host.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return s.put(cmd.Context(), args[0], format) },
	}
	cmd.Flags().StringVarP(&format, "output", "o", "", "json: the digest and the size alone")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"json"}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func (s *Shell) put(ctx context.Context, name, format string) error {
	if format != "" && format != "json" {
		return failure.Usage("read -o "+format, "this is written as text or json", "")
	}
	doing := "put " + name
	f, err := os.Open(name)
	if err != nil {
		return failure.Of(err, doing)
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return failure.Of(err, doing)
	}
	switch {
	case !st.Mode().IsRegular():
		return failure.Usage(doing, "it is no regular file", "a directory goes as an archive: tar -czf NAME.tar.gz -C DIRECTORY .")
	case st.Size() > declare.ObjectBytesMax:
		return failure.Usage(doing, fmt.Sprintf("it has %d bytes, at most %d are stored", st.Size(), declare.ObjectBytesMax), "")
	}
	digest, size, err := content.SumOf(ctx, f)
	if err != nil {
		return failure.Of(err, doing)
	}
	server, _, err := s.Connect()
	if err != nil {
		return err
	}
	// A person who waits sees that it goes on.
	told := func(done int64) {
		if size > 64<<20 && done < size {
			fmt.Fprintf(s.Err, "%d of %d MiB\n", done>>20, size>>20)
		}
	}
	if err := server.PutObject(ctx, digest.String(), size, f, told); err != nil {
		return failure.Of(err, doing)
	}
	reference := declare.ObjectReference{Digest: digest.String(), SizeBytes: size}
	if format == "json" {
		return json.NewEncoder(s.Out).Encode(reference)
	}
	_, err = fmt.Fprintf(s.Out, "✔ Stored  %s, %d bytes\nobject: {digest: %q, sizeBytes: %d}\n", filepath.Base(name), size, reference.Digest, size)
	return err
}
