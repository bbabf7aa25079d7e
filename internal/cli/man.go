package cli

import (
	"errors"
	"io/fs"
	"os"

	"github.com/spf13/cobra"

	"tako.dev/tako/internal/cli/manual"
	"tako.dev/tako/internal/reason"
)

func (p *program) newMan() *cobra.Command {
	return &cobra.Command{
		Use:   "man DIRECTORY",
		Short: "Write the manual pages",
		Example: `  tako man /usr/local/share/man/man1
  tako man . && man ./tako-apply.1`,
		Args: taking(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			err := os.Mkdir(args[0], 0o755) // one directory, and not all above it: that would be a mistyped path
			if err == nil || errors.Is(err, fs.ErrExist) {
				err = manual.Write(cmd.Root(), args[0])
			}
			if err != nil {
				return &reason.Error{Code: reason.SystemCallFailed, Doing: "write the manual pages", Cause: err}
			}
			return nil
		},
	}
}
