package order

import (
	"io"

	"tako.dev/tako/internal/cli/documents"
	"tako.dev/tako/internal/cli/remote"
)

// Shell is what the commands need of the command line that they are part of.
type Shell struct {
	In       io.Reader
	Out, Err io.Writer
	Connect  func() (*remote.Server, string, error)
	// Namespace is that of what names none.
	Namespace func() string
	// Refused shows what is wrong with files, with excerpts.
	Refused func(err error, source *documents.Source) error
}
