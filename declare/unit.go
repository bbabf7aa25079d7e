package declare

import (
	"cmp"
	"path"
	"slices"
	"strings"
	"time"
)

// Unit is a unit file, or a drop-in of one, and that systemd has read it. Whether the unit runs is for a service to say.
//
// +k8s:deepcopy-gen=true
// +k8s:openapi-gen=true
// +k8s:openapi-model-package=dev.tako.declare
type Unit struct {
	// Unit is the unit's full name, of any type; a template too. Default the resource's name, with .service where it has no unit suffix.
	Unit string `json:"unit,omitempty"`
	// DropIn makes it a drop-in of that name, UNIT.d/NAME.conf, and leaves the unit file to others.
	DropIn string `json:"dropIn,omitempty"`
	// Content is the file, as in systemd.syntax(7). systemd-analyze verify must accept it.
	Content string `json:"content"`
}

// Timer runs a command or starts a unit by the calendar, as a timer and a service of systemd.
//
// +k8s:deepcopy-gen=true
// +k8s:openapi-gen=true
// +k8s:openapi-model-package=dev.tako.declare
type Timer struct {
	// Timer is the name of both, without suffix. Default the resource's name.
	Timer string `json:"timer,omitempty"`
	// Calendar says when, systemd.time(7): "daily", "Mon..Fri 02:00", "*-*-01 04:00:00". Whichever comes next counts.
	// +listType=atomic
	Calendar []string `json:"calendar,omitempty"`
	// Command is what runs: the program and its arguments, without a shell. Exactly one of command and unit is set.
	// +listType=atomic
	Command []string `json:"command,omitempty"`
	// Unit is what starts instead.
	Unit string `json:"unit,omitempty"`
	// User is who runs the command, a name or a number in quotes. Default root.
	User string `json:"user,omitempty"`
	// Directory is where it runs, absolute. Default /.
	Directory string `json:"directory,omitempty"`
	// Environment is added to that of services. Who may log in to the host can read it.
	Environment map[string]string `json:"environment,omitempty"`
	// Jitter is the most by which it is late, by chance: "15m", whole seconds up to a week. Default none.
	Jitter string `json:"jitter,omitempty"`
	// CatchUp says whether a run that was missed while the host was off is made at its next start. Default true.
	CatchUp *bool `json:"catchUp,omitempty"`
	// Timeout ends the command: "1h", whole seconds up to a week. Default none.
	Timeout string `json:"timeout,omitempty"`
	// State is present (the default) or absent.
	State EditState `json:"state,omitempty"`
}

// UnitDir is where declared unit files are: what a person writes there has precedence over what packages bring, systemd.unit(5).
const UnitDir = "/etc/systemd/system"

func (u *Unit) claim(name string) Claim { return Claim{ClaimPath, u.Path(name)} }

func (u *Unit) claimField() string { return "unit.unit" }

func (u *Unit) texts() []expandableText { return []expandableText{{"unit.content", &u.Content}} }

// UnitOr returns the name of the unit that the file is of; when none is declared, it is the resource's, with .service where that has no
// unit suffix.
func (u *Unit) UnitOr(resource string) string { return (&Service{Unit: u.Unit}).UnitOr(resource) }

// Path returns where the file is.
func (u *Unit) Path(resource string) string {
	unit := UnitDir + "/" + u.UnitOr(resource)
	if u.DropIn != "" {
		return unit + ".d/" + u.DropIn + ".conf"
	}
	return unit
}

func (t *Timer) claim(name string) Claim { return Claim{ClaimTimer, t.NameOr(name)} }

func (t *Timer) claimField() string { return "timer.timer" }

func (t *Timer) texts() []expandableText {
	texts := []expandableText{{"timer.user", &t.User}, {"timer.directory", &t.Directory}}
	for i := range t.Calendar {
		texts = append(texts, expandableText{indexPath("timer.calendar", i), &t.Calendar[i]})
	}
	for i := range t.Command {
		texts = append(texts, expandableText{indexPath("timer.command", i), &t.Command[i]})
	}
	return texts
}

// NameOr returns the name of the timer without suffix; when none is declared, it is the resource's.
func (t *Timer) NameOr(resource string) string { return cmp.Or(t.Timer, resource) }

// TimerUnit and ServiceUnit return the names of the units that a timer of that name is made of.
func (t *Timer) TimerUnit(resource string) string { return t.NameOr(resource) + ".timer" }

// ServiceUnit returns the name of the unit that runs the command.
func (t *Timer) ServiceUnit(resource string) string { return t.NameOr(resource) + ".service" }

// Absent reports whether there must be no such timer.
func (t *Timer) Absent() bool { return t.State == EditAbsent }

// CatchesUp reports whether a run that was missed is made later.
func (t *Timer) CatchesUp() bool { return t.CatchUp == nil || *t.CatchUp }

// JitterOrDefault returns the most by which the timer is late. The Timer must have passed Validate.
func (t *Timer) JitterOrDefault() time.Duration { return durationOr(t.Jitter, 0) }

// TimeoutOrDefault returns after which time the command is ended, 0 for never. The Timer must have passed Validate.
func (t *Timer) TimeoutOrDefault() time.Duration { return durationOr(t.Timeout, 0) }

func durationOr(text string, other time.Duration) time.Duration {
	if d, err := time.ParseDuration(text); err == nil {
		return d
	}
	return other
}

// autoEdges puts a unit file after what systemd has to find when it is verified, and a drop-in before its service, as for a file.
func (u *Unit) autoEdges(claim Claim) []AutoEdge {
	unit, _, _ := strings.Cut(strings.TrimPrefix(claim.ID, UnitDir+"/"), ".d/")
	edges := append(pathAutoEdges(claim.ID), packageOfUnit(unit))
	if u.DropIn != "" {
		for _, other := range filesOfUnit(unit) {
			edges = append(edges, AutoEdge{Other: other, Why: "unit file of a drop-in"})
		}
	}
	stem := strings.TrimSuffix(unit, path.Ext(unit))
	switch path.Ext(unit) {
	case ".timer", ".socket", ".path":
		edges = append(edges, startedBy(stem+".service")...)
	}
	for line := range strings.Lines(u.Content) {
		edges = append(edges, lineAutoEdges(strings.TrimSpace(line))...)
	}
	return edges
}

// lineAutoEdges are those of a line of a unit file: to who runs a program, to the program, to a unit that is started.
func lineAutoEdges(line string) []AutoEdge {
	key, value, ok := strings.Cut(line, "=")
	key, value = strings.TrimSpace(key), strings.TrimSpace(value)
	if !ok || value == "" || strings.ContainsAny(value, "%") || strings.Contains(value, "$(") {
		return nil
	}
	switch {
	case key == "User":
		return accountEdges("user of a unit", value, "")
	case key == "Group":
		return accountEdges("user of a unit", "", value)
	case key == "Unit", key == "Service":
		return startedBy(value)
	case strings.HasPrefix(key, "Exec"):
		program, _, _ := strings.Cut(strings.TrimLeft(value, "-@:+!|"), " ")
		if p := strings.Trim(program, `"'`); strings.HasPrefix(p, "/") {
			return []AutoEdge{{Other: Claim{ClaimPath, p}, Why: "program of a unit"}}
		}
	}
	return nil
}

// filesOfUnit are where the file of a unit can be, that of its template too.
func filesOfUnit(unit string) (claims []Claim) {
	for _, e := range unitAutoEdges(unit) {
		if e.Other.Kind == ClaimPath && !slices.Contains(claims, e.Other) {
			claims = append(claims, e.Other)
		}
	}
	return claims
}

// startedBy are the edges of what starts another unit.
func startedBy(unit string) (edges []AutoEdge) {
	for _, other := range filesOfUnit(unit) {
		edges = append(edges, AutoEdge{Other: other, Why: "unit that is started"})
	}
	return edges
}

// packageOfUnit is the edge to the package of a unit's name.
func packageOfUnit(unit string) AutoEdge {
	stem, _, _ := strings.Cut(strings.TrimSuffix(unit, path.Ext(unit)), "@")
	return AutoEdge{Other: Claim{ClaimPackage, stem}, Why: "package of a unit"}
}

// autoEdges puts a timer after who runs the command, the program, where it runs, and the unit that is started.
func (t *Timer) autoEdges(Claim) []AutoEdge {
	edges := accountEdges("user of a command", t.User, "")
	if t.Unit != "" {
		edges = append(append(edges, startedBy(t.Unit)...), packageOfUnit(t.Unit))
	}
	if len(t.Command) > 0 {
		edges = append(edges, commandEdge(t.Command[0], execProgram)...)
	}
	return append(edges, commandEdge(t.Directory, execDirectory)...)
}

func commandEdge(p, why string) []AutoEdge {
	if !strings.HasPrefix(p, "/") || p == "/" || strings.Contains(p, "$(") {
		return nil
	}
	return []AutoEdge{{Other: Claim{ClaimPath, p}, Why: why}}
}
