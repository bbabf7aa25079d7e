package declare

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"tako.dev/tako/declare/calendar"
	"tako.dev/tako/internal/reason"
)

// Bounds of unit files and timers.
const (
	dropInBytesMax   = 255 - len(".conf") // NAME_MAX, limits.h
	calendarsMax     = 32                 // ours: far above any real one
	timerDurationMax = 7 * 24 * time.Hour // ours: what is later, or takes longer, is another run
)

func (u *Unit) validate(v *validator) {
	if name := u.UnitOr(v.resource.Name); v.resource.Name != "" || u.Unit != "" {
		v.unitFileName(name)
	}
	if u.DropIn != "" {
		v.dropIn(u.DropIn)
	}
	v.unitContent(u.Content)
}

// unitFileName checks the name of a unit that there can be a file of: a template too.
func (v *validator) unitFileName(name string) {
	suffix := path.Ext(name)
	if stem := strings.TrimSuffix(name, suffix); strings.HasSuffix(stem, "@") && len(stem) > 1 && suffix != ".scope" {
		name = stem + "x" + suffix // as long as an instance of it can be, at least
	}
	if suffix == ".scope" {
		v.invalid(v.path("unit.unit"), fmt.Sprintf("%q has no unit file: scopes are made by programs", clipText(name)), "write a drop-in of the slice or service that it is in")
		return
	}
	if message, hint := unitMistake(name); message != "" && suffix != ".device" {
		v.invalid(v.path("unit.unit"), message, hint)
	}
}

func (v *validator) dropIn(name string) {
	const rule = "letters, digits and any of . _ - + @ : with a letter or digit first, such as 50-limits"
	at := v.path("unit.dropIn")
	switch {
	case strings.HasSuffix(name, ".conf"):
		v.invalid(at, fmt.Sprintf("drop-in %q is written with its suffix", clipText(name)), fmt.Sprintf("write %q", clipText(strings.TrimSuffix(name, ".conf"))))
	case !isResourceName(name) || len(name) > dropInBytesMax:
		v.invalid(at, fmt.Sprintf("%q is not a name of a drop-in", clipText(name)), rule)
	}
}

// unitContent checks what can be seen of a unit file without a host.
func (v *validator) unitContent(content string) {
	at := v.path("unit.content")
	switch {
	case strings.TrimSpace(content) == "":
		v.fault(at, reason.MissingField, v.path("unit")+` has no "content"`, "an empty unit file is one that is masked: for that, write service: {masked: true}")
		return
	case strings.Contains(content, "\x00"):
		v.invalid(at, "the content holds a NUL byte, which no unit file may", "")
		return
	}
	if line, message := unitSyntaxMistake(content); message != "" {
		v.invalid(at, fmt.Sprintf("line %d: %s", line, message), "see systemd.syntax(7)")
	}
}

// unitSyntaxMistake finds the first line that systemd would not read: one that is neither a section, nor NAME=VALUE in one, nor empty, nor
// a comment.
func unitSyntaxMistake(content string) (line int, message string) {
	inSection, continued := false, false
	for text := range strings.SplitSeq(content, "\n") {
		line++
		text = strings.TrimSpace(text)
		isComment := text != "" && (text[0] == '#' || text[0] == ';')
		switch {
		case isComment:
			continue // also between the lines of a value
		case continued, text == "":
		case text[0] == '[':
			if !strings.HasSuffix(text, "]") || len(text) < 3 {
				return line, fmt.Sprintf("%q is not a section", clipText(text))
			}
			inSection = true
		case !strings.Contains(text, "=") || text[0] == '=':
			return line, fmt.Sprintf("%q is neither a section nor NAME=VALUE", clipText(text))
		case !inSection:
			return line, fmt.Sprintf("%q stands before the first section", clipText(text))
		}
		continued = strings.HasSuffix(text, `\`)
	}
	return 0, ""
}

func (t *Timer) validate(v *validator) {
	name := t.NameOr(v.resource.Name)
	if v.resource.Name != "" || t.Timer != "" {
		v.timerName(name)
	}
	v.timerFiles()
	switch t.State {
	case "", EditPresent:
	case EditAbsent:
		v.notOfAbsent("a timer", []written{
			{"timer.calendar", len(t.Calendar) > 0}, {"timer.command", len(t.Command) > 0}, {"timer.unit", t.Unit != ""}, {"timer.user", t.User != ""},
			{"timer.directory", t.Directory != ""}, {"timer.environment", len(t.Environment) > 0}, {"timer.jitter", t.Jitter != ""},
			{"timer.catchUp", t.CatchUp != nil}, {"timer.timeout", t.Timeout != ""},
		})
		return
	default:
		v.unknownWord(v.path("timer.state"), "state", string(t.State), []string{string(EditPresent), string(EditAbsent)})
	}
	v.calendars("timer.calendar", t.Calendar)
	v.wholeSeconds("timer.jitter", t.Jitter)
	v.wholeSeconds("timer.timeout", t.Timeout)
	v.timerAction(t, name)
}

func (v *validator) timerName(name string) {
	at := v.path("timer.timer")
	if stem, ok := strings.CutSuffix(name, ".timer"); ok {
		v.invalid(at, fmt.Sprintf("timer %q is written with its suffix", clipText(name)), fmt.Sprintf("write %q", clipText(stem)))
		return
	}
	if message, hint := unitMistake(name + ".service"); message != "" {
		v.invalid(at, message, hint)
	}
}

// timerFiles refuses that something else is about the units of a timer. The first timer of a config does it for all.
func (v *validator) timerFiles() {
	all := v.config.Spec.Resources
	first := slices.IndexFunc(all, func(r Resource) bool { return r.Timer != nil })
	if first != v.index {
		return
	}
	timers := map[Claim]int{}
	for i := first; i < len(all); i++ {
		if t := all[i].Timer; t != nil {
			name := all[i].Name
			timers[Claim{ClaimUnit, t.TimerUnit(name)}], timers[Claim{ClaimPath, UnitDir + "/" + t.TimerUnit(name)}] = i, i
			if t.Unit == "" {
				timers[Claim{ClaimPath, UnitDir + "/" + t.ServiceUnit(name)}] = i
			}
		}
	}
	for i := range all {
		claim := all[i].Claim()
		timer, ok := timers[claim]
		if !ok {
			continue
		}
		f := v.fault(ResourcePath(i)+"."+all[i].claimField(), reason.DuplicateClaim, fmt.Sprintf("%s %s belongs to %s", claim.Kind, clipText(claim.ID), all[timer].Title()),
			"a timer is its unit files, and that it runs: remove one of them")
		f.Related = []Place{{Path: ResourcePath(timer) + "." + all[timer].claimField(), Note: "declared here"}}
	}
}

func (v *validator) calendars(field string, list []string) {
	const hint = `write for example "daily", "Mon..Fri 02:00" or "*-*-01 04:00:00", see systemd.time(7)`
	if len(list) == 0 {
		v.fault(v.path(field), reason.MissingField, v.path("timer")+` has no "calendar"`, hint)
	}
	if !v.atMost(v.path(field), len(list), calendarsMax, "calendar expressions", "") {
		return
	}
	seen := map[string]bool{}
	for i, text := range list {
		if v.expands(text) {
			continue
		}
		at := v.path(indexPath(field, i))
		e, err := calendar.Parse(text)
		switch {
		case err != nil:
			v.invalid(at, fmt.Sprintf("%q is not a calendar expression: %v", clipText(text), err), hint)
		case seen[e.String()]:
			v.invalid(at, fmt.Sprintf("%q is there already", clipText(text)), "remove one of them")
		}
		seen[e.String()] = true
	}
}

// wholeSeconds checks a time that may be left out.
func (v *validator) wholeSeconds(field, text string) {
	if text == "" {
		return
	}
	const hint = `write for example "30s", "15m" or "1h30m"`
	switch d, err := time.ParseDuration(text); {
	case err != nil:
		v.invalid(v.path(field), fmt.Sprintf("%q is not a time", clipText(text)), hint)
	case d < time.Second || d > timerDurationMax || d%time.Second != 0:
		v.invalid(v.path(field), fmt.Sprintf("%q is not a number of whole seconds from one to a week", clipText(text)), hint)
	}
}

// timerAction checks what a timer starts.
func (v *validator) timerAction(t *Timer, name string) {
	const hint = `write the program and its arguments: command: [/usr/bin/backup, --all], or the unit to start: unit: backup.service`
	switch {
	case len(t.Command) == 0 && t.Unit == "":
		v.fault(v.path("timer"), reason.MissingField, v.path("timer")+` has neither "command" nor "unit"`, hint)
	case len(t.Command) > 0 && t.Unit != "":
		v.fault(v.path("timer.unit"), reason.FieldNotAllowed, "a timer either runs a command or starts a unit", "remove one of them")
	case t.Unit != "":
		v.timerUnit(t, name)
		return
	}
	v.arguments("timer.command", t.Command)
	if len(t.Command) > 0 && strings.ContainsFunc(t.Command[0], func(r rune) bool { return r < ' ' || r == 0x7f || strings.ContainsRune(`"'\`, r) }) {
		v.invalid(v.path("timer.command[0]"), fmt.Sprintf("program %q has a sign in its path that systemd does not take", clipText(t.Command[0])), `run it by way of /usr/bin/env: [/usr/bin/env, ...]`)
	}
	if t.User != "" && !v.expands(t.User) && !isOwner(t.User) {
		v.invalid(v.path("timer.user"), fmt.Sprintf("%q is neither a name nor a number of a user", clipText(t.User)), "")
	}
	v.timerDirectory(t.Directory)
	v.environment("timer.environment", t.Environment)
	for _, variable := range sortedKeys(t.Environment) {
		if strings.ContainsFunc(t.Environment[variable], func(r rune) bool { return r < ' ' && r != '\t' && r != '\n' && r != 0 || r == 0x7f }) {
			v.invalid(keyPath(v.path("timer.environment"), variable), "the value holds a control character, which systemd does not take", "put it into a file that the command reads")
		}
	}
}

// timerUnit checks the unit that is started, and that nothing is said of a command.
func (v *validator) timerUnit(t *Timer, name string) {
	if message, hint := unitMistake(t.Unit); message != "" {
		v.invalid(v.path("timer.unit"), message, hint)
	} else if t.Unit == name+".timer" {
		v.invalid(v.path("timer.unit"), "a timer cannot start itself", "name the unit that does the work")
	}
	for _, f := range []written{{"timer.user", t.User != ""}, {"timer.directory", t.Directory != ""}, {"timer.environment", len(t.Environment) > 0}, {"timer.timeout", t.Timeout != ""}} {
		if f.set {
			_, field, _ := strings.Cut(f.field, ".")
			v.fault(v.path(f.field), reason.FieldNotAllowed, "a timer that starts a unit has no "+field, "say it in the unit, for example by a drop-in")
		}
	}
}

// timerDirectory checks a directory as systemd takes it: to the end of a line.
func (v *validator) timerDirectory(dir string) {
	if dir == "" || dir == "/" || v.expands(dir) {
		return
	}
	if strings.ContainsFunc(dir, func(r rune) bool { return r < ' ' || r == 0x7f }) || strings.HasSuffix(dir, `\`) || strings.TrimSpace(dir) != dir {
		v.invalid(v.path("timer.directory"), fmt.Sprintf("%q has a sign that systemd does not take in a directory", clipText(dir)), "")
		return
	}
	v.fsPath("timer.directory", dir)
}
