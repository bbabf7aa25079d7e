package present

import (
	"fmt"
	"io"
	"strings"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/reason"
)

// Error writes a failure as both programs show one: code and text on one line, then what to do where that is known.
func Error(w io.Writer, code reason.Code, text, hint string, style Style) error {
	out := style.paint(red, "error["+code.String()+"]") + ": " + Escape(text) + "\n"
	if hint != "" {
		out += style.paint(green, "help") + ": " + Escape(hint) + "\n"
	}
	_, err := io.WriteString(w, out)
	return err
}

// Warning writes what a person should know and no program acts upon.
func Warning(w io.Writer, text string, style Style) error {
	_, err := io.WriteString(w, style.paint(yellow, "warning")+": "+Escape(text)+"\n")
	return err
}

// ExitOf is the exit code of faults: that of their codes where these agree, otherwise that of wrong usage.
func ExitOf(faults []declare.Fault) reason.Exit {
	exit := reason.ExitUsage
	for i, f := range faults {
		row, _ := reason.Lookup(f.Code)
		if i > 0 && row.Exit != exit {
			return reason.ExitUsage
		}
		exit = row.Exit
	}
	return exit
}

// exits are what each exit code means. Of diff the first two are the answer.
var exits = [...]struct {
	exit  reason.Exit
	words string
}{
	{reason.ExitOK, "done; of diff: nothing would change"},
	{reason.ExitFailed, "failed; of diff: something would change"},
	{reason.ExitUsage, "the command line or a file is wrong, and nothing was changed; of diff: any failure"},
	{reason.ExitDeadline, "not within the time given"},
	{reason.ExitStalled, "what is waited for cannot come"},
	{reason.ExitNotAllowed, "the credentials are refused, or do not allow it"},
	{reason.ExitConflict, "somebody else has changed it, or owns it"},
	{reason.ExitNotFound, "there is no such object"},
	{reason.ExitUnreachable, "the server does not answer"},
}

// ExitCodes is the list of exit codes, a line each.
func ExitCodes() string {
	var b strings.Builder
	for _, e := range exits {
		fmt.Fprintf(&b, "%d  %s\n", e.exit, e.words)
	}
	return b.String()
}

// HelpTopic returns the text of a topic that is not a command: the list of codes for "codes", that of exit codes for "exit-codes",
// and the page of a code such as TK0412. False means that the topic is something else. The error is that of a code that does not exist; its hint names the
// program that runs.
func HelpTopic(topic, program string) (text string, ok bool, err error) {
	if topic == "codes" {
		var b strings.Builder
		for _, e := range reason.All() {
			fmt.Fprintf(&b, "%s  %s\n", e.Code, e.Title)
		}
		return b.String(), true, nil
	}
	if topic == "exit-codes" {
		return ExitCodes(), true, nil
	}
	const form = len("TK0412")
	if len(topic) != form || !strings.EqualFold(topic[:2], "TK") {
		return "", false, nil
	}
	code, err := reason.ParseCode(topic)
	if err != nil {
		unknown := *reason.Of(err)
		unknown.Hint += "; `" + program + " help codes` lists them"
		return "", true, &unknown
	}
	page, err := reason.Page(code)
	return strings.TrimSpace(page) + "\n", true, err
}
