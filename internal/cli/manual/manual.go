// Package manual writes the manual pages of commands.
package manual

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"tako.dev/tako/internal/cli/settings"
	"tako.dev/tako/internal/present"
)

// Write writes the page of a command, and of all below it, into a directory.
func Write(cmd *cobra.Command, directory string) error {
	for _, below := range cmd.Commands() {
		if !below.IsAvailableCommand() || below.IsAdditionalHelpTopicCommand() {
			continue
		}
		if err := Write(below, directory); err != nil {
			return err
		}
	}
	page, err := pageOf(cmd)
	if err != nil {
		return err
	}
	name := strings.ReplaceAll(cmd.CommandPath(), " ", "-") + ".1"
	return os.WriteFile(filepath.Join(directory, name), page, 0o644)
}

// What the library writes of a flag: its value when it is not given, and for one that takes none, that it is false.
var (
	switchFlag = regexp.MustCompile(`(?m)^(\\fB-.*)\[=(?:true|false)\]$`)
	emptyFlag  = regexp.MustCompile(`(?m)^(\\fB-.*)=(?:""|\[\])$`)
	valueFlag  = regexp.MustCompile(`(?m)^(\\fB-.*)="?([^"\n]+?)"?$`)
	dateOfPage = regexp.MustCompile(`(?m)^(\.TH "[^"]*" "1" )"[^"]*"`)
)

// pageOf is the page of a command: what the library makes of its help, with the flags as people write them, and with what is
// the same for all commands. It is the same bytes on every day.
func pageOf(cmd *cobra.Command) ([]byte, error) {
	cmd.DisableAutoGenTag = true
	day := time.Unix(0, 0).UTC()
	title := strings.ToUpper(strings.ReplaceAll(cmd.CommandPath(), " ", "-"))
	var page bytes.Buffer
	if err := doc.GenMan(cmd, &doc.GenManHeader{Title: title, Section: "1", Source: "tako", Manual: "tako", Date: &day}, &page); err != nil {
		return nil, err
	}
	text := dateOfPage.ReplaceAllString(page.String(), `$1""`)
	text = switchFlag.ReplaceAllString(text, "$1")
	text = emptyFlag.ReplaceAllString(text, `$1 \fIVALUE\fP`)
	text = valueFlag.ReplaceAllString(text, `$1 \fI$2\fP`)
	common := section("EXIT STATUS", present.ExitCodes()) + section("ENVIRONMENT", settings.HelpEnvironment()) + section("FILES", settings.HelpFiles())
	if before, after, ok := strings.Cut(text, "\n.SH SEE ALSO"); ok {
		return []byte(before + "\n" + common + "\n.SH SEE ALSO" + after), nil
	}
	return []byte(text + common), nil
}

// section writes lines as they are under a heading.
func section(title, text string) string {
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
