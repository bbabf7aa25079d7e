package cli

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"tako.dev/tako/internal/cli/settings"
	"tako.dev/tako/internal/present"
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
				err = writePages(cmd.Root(), args[0])
			}
			if err != nil {
				return &reason.Error{Code: reason.SystemCallFailed, Doing: "write the manual pages", Cause: err}
			}
			return nil
		},
	}
}

// writePages writes the page of a command, and of all below it.
func writePages(cmd *cobra.Command, directory string) error {
	for _, below := range cmd.Commands() {
		if !below.IsAvailableCommand() || below.IsAdditionalHelpTopicCommand() {
			continue
		}
		if err := writePages(below, directory); err != nil {
			return err
		}
	}
	page, err := manPage(cmd)
	if err != nil {
		return err
	}
	name := strings.ReplaceAll(cmd.CommandPath(), " ", "-") + ".1"
	return os.WriteFile(filepath.Join(directory, name), page, 0o644)
}

// What the library writes of a flag: its value when it is not given, and for one that takes none, that it is false.
var (
	manSwitch = regexp.MustCompile(`(?m)^(\\fB-.*)\[=(?:true|false)\]$`)
	manEmpty  = regexp.MustCompile(`(?m)^(\\fB-.*)=(?:""|\[\])$`)
	manValue  = regexp.MustCompile(`(?m)^(\\fB-.*)="?([^"\n]+?)"?$`)
	manDate   = regexp.MustCompile(`(?m)^(\.TH "[^"]*" "1" )"[^"]*"`)
)

// manPage is the page of a command: what the library makes of its help, with the flags as people write them, and with what is
// the same for all commands. It is the same bytes on every day.
func manPage(cmd *cobra.Command) ([]byte, error) {
	cmd.DisableAutoGenTag = true
	day := time.Unix(0, 0).UTC()
	title := strings.ToUpper(strings.ReplaceAll(cmd.CommandPath(), " ", "-"))
	var page bytes.Buffer
	if err := doc.GenMan(cmd, &doc.GenManHeader{Title: title, Section: "1", Source: "tako", Manual: "tako", Date: &day}, &page); err != nil {
		return nil, err
	}
	text := manDate.ReplaceAllString(page.String(), `$1""`)
	text = manSwitch.ReplaceAllString(text, "$1")
	text = manEmpty.ReplaceAllString(text, `$1 \fIVALUE\fP`)
	text = manValue.ReplaceAllString(text, `$1 \fI$2\fP`)
	common := manSection("EXIT STATUS", present.ExitCodes()) + manSection("ENVIRONMENT", settings.HelpEnvironment()) + manSection("FILES", settings.HelpFiles())
	if before, after, ok := strings.Cut(text, "\n.SH SEE ALSO"); ok {
		return []byte(before + "\n" + common + "\n.SH SEE ALSO" + after), nil
	}
	return []byte(text + common), nil
}

// manSection writes lines as they are under a heading.
func manSection(title, text string) string {
	var b strings.Builder
	b.WriteString(".SH " + title + "\n.EX\n")
	for line := range strings.Lines(text) {
		line = strings.ReplaceAll(strings.ReplaceAll(line, `\`, `\e`), "-", `\-`)
		if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
			line = `\&` + line // or it were a request
		}
		b.WriteString(line)
	}
	b.WriteString(".EE\n")
	return b.String()
}
