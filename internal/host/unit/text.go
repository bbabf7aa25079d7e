package unit

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"tako.dev/tako/declare"
)

// madeBy begins every unit file that a timer has: by it a service that is somebody else's is told from one of a timer.
const madeBy = "# Made by tako for a timer: what is changed here is put back.\n"

// timerText is the unit file of a timer.
func timerText(t *declare.Timer, name string) string {
	var b strings.Builder
	b.WriteString(madeBy + "[Unit]\nDescription=Timer " + name + " of tako\n\n[Timer]\n")
	for _, c := range t.Calendar {
		b.WriteString("OnCalendar=" + c + "\n")
	}
	// A minute, systemd's own, is too coarse for what is declared to the second.
	b.WriteString("AccuracySec=1s\n")
	if jitter := t.JitterOrDefault(); jitter > 0 {
		fmt.Fprintf(&b, "RandomizedDelaySec=%ds\n", int64(jitter.Seconds()))
	}
	fmt.Fprintf(&b, "Persistent=%t\nUnit=%s\n\n[Install]\nWantedBy=timers.target\n", t.CatchesUp(), started(t, name))
	return b.String()
}

// started is the unit that a timer starts.
func started(t *declare.Timer, name string) string {
	if t.Unit != "" {
		return t.Unit
	}
	return t.ServiceUnit(name)
}

// serviceText is the unit file of the service that runs the command of a timer.
func serviceText(t *declare.Timer, name string) string {
	var b strings.Builder
	b.WriteString(madeBy + "[Unit]\nDescription=Command of timer " + name + " of tako\n\n[Service]\nType=oneshot\n")
	if t.User != "" {
		b.WriteString("User=" + percent(t.User) + "\n")
	}
	if t.Directory != "" {
		b.WriteString("WorkingDirectory=" + percent(t.Directory) + "\n")
	}
	for _, variable := range slices.Sorted(maps.Keys(t.Environment)) {
		b.WriteString("Environment=" + quoted(variable+"="+t.Environment[variable]) + "\n")
	}
	if timeout := t.TimeoutOrDefault(); timeout > 0 {
		fmt.Fprintf(&b, "TimeoutStartSec=%ds\n", int64(timeout.Seconds()))
	}
	b.WriteString("ExecStart=" + commandLine(t.Command) + "\n")
	return b.String()
}

// commandLine writes a command as systemd.service(5) reads it. The program and its name are given apart (@), because variables are
// expanded in the name and not in the path.
func commandLine(args []string) string {
	if len(args) == 0 {
		return ""
	}
	words := []string{quoted("@" + args[0])}
	for _, a := range args {
		words = append(words, quoted(strings.ReplaceAll(a, "$", "$$")))
	}
	return strings.Join(words, " ")
}

// percent keeps specifiers from being expanded, systemd.unit(5).
func percent(s string) string { return strings.ReplaceAll(s, "%", "%%") }

// quoted writes a word as systemd.syntax(7) and systemd.service(5) read it, whatever is in it but NUL.
func quoted(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for len(s) > 0 {
		r, size := utf8.DecodeRuneInString(s)
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r == '%':
			b.WriteString("%%")
		case r < ' ' || r == 0x7f || r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, s[0])
		default:
			b.WriteString(s[:size])
		}
		s = s[size:]
	}
	b.WriteByte('"')
	return b.String()
}
