package declare

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"tako.dev/tako/internal/reason"
)

// Exec is a command that is run where it is needed. What a host must be like is better said by another type: of a command nobody can
// tell beforehand what it changes.
//
// +k8s:deepcopy-gen=true
// +k8s:openapi-gen=true
// +k8s:openapi-model-package=dev.tako.declare
type Exec struct {
	// Command is the program and its arguments, without a shell. The program is absolute, or looked for in the usual directories.
	// +listType=atomic
	Command []string `json:"command"`
	// Creates is a path: while something is there the command has nothing to do.
	Creates string `json:"creates,omitempty"`
	// Unless is a command: when it succeeds the command has nothing to do. It may change nothing.
	// +listType=atomic
	Unless []string `json:"unless,omitempty"`
	// OnlyIf is a command: when it does not succeed the command has nothing to do. It may change nothing.
	// +listType=atomic
	OnlyIf []string `json:"onlyIf,omitempty"`
	// RefreshOnly runs the command only when it is notified.
	RefreshOnly bool `json:"refreshOnly,omitempty"`
	// Timeout ends the command with all that it has started: "30s", "10m"; one second to a day. Default 5m.
	Timeout string `json:"timeout,omitempty"`
	// Tries is how often the command is run, with pauses, until it counts as failed: 1 to 20, and all of them together may take a day at
	// most. Default 1. One that has failed is tried again later all the same, for ever.
	Tries int `json:"tries,omitempty"`
	// User is who runs it, a name or a number in quotes. Default root; without root rights, the caller.
	User string `json:"user,omitempty"`
	// Group is the group in which it runs. Default the user's primary one.
	Group string `json:"group,omitempty"`
	// Directory is where it runs, absolute. Default /.
	Directory string `json:"directory,omitempty"`
	// Environment is added to PATH, HOME, USER, LOGNAME, SHELL and LANG=C.UTF-8, which are all that it has.
	Environment map[string]string `json:"environment,omitempty"`
	// EnvironmentFrom takes further variables from a Secret or a ConfigMap: a value of lines NAME=VALUE, of which empty ones and those that
	// begin with # say nothing. What environment says of the same name counts.
	EnvironmentFrom *ContentSource `json:"environmentFrom,omitempty"`
	// Umask is octal text. Default "0022".
	Umask Mode `json:"umask,omitempty"`
	// ExitCodes are those that mean success. Default 0 alone.
	// +listType=atomic
	ExitCodes []int `json:"exitCodes,omitempty"`
}

// The bounds of a command.
const (
	// ExecTimeoutDefault is long enough for an installation script, and short enough that one that waits for an answer which
	// nobody gives is told of while somebody still looks.
	ExecTimeoutDefault = 5 * time.Minute
	// ExecTimeoutMax bounds how long a command may run.
	ExecTimeoutMax = 24 * time.Hour

	// ExecTriesMax bounds how often a command is run until it counts as failed.
	ExecTriesMax = 20

	execTimeoutMin      = time.Second
	execUmaskDefault    = 0o022
	umaskMax            = 0o777
	exitCodeMax         = 255         // what a parent gets to know of an exit status, wait(2)
	argumentBytesMax    = 32*4096 - 1 // MAX_ARG_STRLEN of execve(2) without the NUL
	variablesMax        = 256         // ours: far above any real environment
	environmentBytesMax = 64 << 10    // ours: a quarter of what a resource's text may have
	execProgram         = "program of a command"
	execDirectory       = "directory of a command"
)

func (e *Exec) claim(name string) Claim { return Claim{ClaimExec, name} }

func (e *Exec) claimField() string { return "name" }

func (e *Exec) texts() []expandableText {
	texts := []expandableText{{"exec.creates", &e.Creates}, {"exec.user", &e.User}, {"exec.group", &e.Group}, {"exec.directory", &e.Directory}}
	for _, c := range e.commands() {
		for i := range c.args {
			texts = append(texts, expandableText{indexPath(c.field, i), &c.args[i]})
		}
	}
	return texts
}

func (e *Exec) source() *ContentSource { return e.EnvironmentFrom }

func (e *Exec) fill(text string, from *ContentSource) (body, error) {
	out := *e
	out.EnvironmentFrom, out.Environment = from, make(map[string]string, len(e.Environment))
	number := 0
	for line := range strings.Lines(text) {
		number++
		line = strings.TrimRight(line, "\r\n")
		if line == "" || line[0] == '#' {
			continue
		}
		name, value, ok := strings.Cut(line, "=")
		if !ok || !isVariableName(name) || strings.Contains(value, "\x00") {
			return nil, fmt.Errorf("line %d is not NAME=VALUE", number)
		}
		out.Environment[name] = value
	}
	maps.Copy(out.Environment, e.Environment)
	if len(out.Environment) > variablesMax {
		return nil, fmt.Errorf("there are %d variables, at most %d are allowed", len(out.Environment), variablesMax)
	}
	return &out, nil
}

// execCommand is one of the commands that an Exec names.
type execCommand struct {
	field string
	args  []string
}

func (e *Exec) commands() []execCommand {
	return []execCommand{{"exec.command", e.Command}, {"exec.unless", e.Unless}, {"exec.onlyIf", e.OnlyIf}}
}

// autoEdges puts a command after whom it runs as, where it runs, what it runs, and the directories and mounts above what it creates. Not after
// packages that the path looks like: it may be there for one of them.
func (e *Exec) autoEdges(Claim) []AutoEdge {
	edges := accountEdges("user of a command", e.User, e.Group)
	paths := map[string]string{}
	for _, c := range e.commands() {
		if len(c.args) > 0 {
			paths[c.args[0]] = execProgram
		}
	}
	paths[e.Directory] = execDirectory
	for _, p := range sortedKeys(paths) {
		if strings.HasPrefix(p, "/") && p != "/" && !strings.Contains(p, "$(") {
			edges = append(edges, AutoEdge{Other: Claim{ClaimPath, p}, Why: paths[p]})
		}
	}
	return append(edges, aboveEdges(e.Creates)...)
}

// notified marks a type that acts on notifications.
func (e *Exec) notified() {}

// permanent says why a command cannot be deleted.
func (e *Exec) permanent() (message, hint string) {
	return "what a command has done cannot be deleted", "leave onRemove out, or declare another command that undoes it"
}

// TimeoutOrDefault returns after which time the command is ended. The Exec must have passed Validate.
func (e *Exec) TimeoutOrDefault() time.Duration {
	if d, err := time.ParseDuration(e.Timeout); err == nil && d > 0 {
		return d
	}
	return ExecTimeoutDefault
}

// TriesOrDefault returns how often the command is run until it counts as failed, at least once.
func (e *Exec) TriesOrDefault() int { return max(e.Tries, 1) }

// UmaskOrDefault returns the permissions that new files do not get.
func (e *Exec) UmaskOrDefault() uint32 { return e.Umask.bitsOr(execUmaskDefault) }

// DirectoryOrDefault returns where the command runs.
func (e *Exec) DirectoryOrDefault() string {
	if e.Directory == "" {
		return "/"
	}
	return e.Directory
}

// Succeeds reports whether an exit status means success.
func (e *Exec) Succeeds(status int) bool {
	if len(e.ExitCodes) == 0 {
		return status == 0
	}
	return slices.Contains(e.ExitCodes, status)
}

func (e *Exec) validate(v *validator) {
	if len(e.Command) == 0 {
		v.fault(v.path("exec.command"), reason.MissingField, v.path("exec")+` has no "command"`, `write the program and its arguments: command: [/usr/bin/make, install]`)
	}
	for _, c := range e.commands() {
		v.arguments(c.field, c.args)
	}
	if e.Creates != "" && !v.expands(e.Creates) {
		v.fsPath("exec.creates", e.Creates)
	}
	if e.Directory != "" && e.Directory != "/" && !v.expands(e.Directory) {
		v.fsPath("exec.directory", e.Directory)
	}
	for _, o := range []struct{ field, name string }{{"exec.user", e.User}, {"exec.group", e.Group}} {
		if o.name != "" && !v.expands(o.name) && !isOwner(o.name) {
			v.invalid(v.path(o.field), fmt.Sprintf("%q is neither a name nor a number of a user or group", clipText(o.name)), "write user and group apart: user: www-data, group: adm")
		}
	}
	v.execTimeout(e.Timeout)
	v.tries("exec.tries", e)
	v.environment("exec.environment", e.Environment)
	v.contentSource("exec.environmentFrom", e.EnvironmentFrom, false)
	v.umask("exec.umask", e.Umask)
	v.exitCodes("exec.exitCodes", e.ExitCodes)
	if v.resource.OnRemove == OnRemoveRestore {
		v.fault(v.path("onRemove"), reason.FieldNotAllowed, "what a command has done cannot be put back", "leave onRemove out, or declare another command that undoes it")
	}
}

// expands reports whether what stands in a text is known on a host only.
func (v *validator) expands(text string) bool {
	return v.resource.Expand && strings.Contains(text, "$(")
}

// arguments checks a command: a program that can be found, and arguments that it can be given.
func (v *validator) arguments(field string, args []string) {
	if len(args) == 0 || !v.atMost(v.path(field), len(args), ArgumentsMax, "arguments", "") {
		return
	}
	first := v.path(indexPath(field, 0))
	switch program := args[0]; {
	case program == "":
		v.invalid(first, "the command begins with no program", "")
	case v.expands(program):
	case strings.ContainsAny(program, " \t") && !strings.Contains(program, "/"):
		v.invalid(first, fmt.Sprintf("%q is not a program", clipText(program)), `one argument each: [systemctl, reload, nginx]; for a line of shell: [/bin/sh, -c, "..."]`)
	case strings.Contains(program, "/") && (!path.IsAbs(program) || len(program) >= PathBytesMax):
		v.invalid(first, fmt.Sprintf("program %q is neither absolute nor a plain name", clipText(program)), "begin it with /, or give its name alone: it is looked for in the usual directories")
	}
	for i, argument := range args {
		switch at := v.path(indexPath(field, i)); {
		case strings.Contains(argument, "\x00"):
			v.invalid(at, "an argument holds a NUL byte, which no program can be given", "")
		case len(argument) > argumentBytesMax:
			v.invalid(at, fmt.Sprintf("an argument has %d bytes, at most %d are possible", len(argument), argumentBytesMax), "put it into a file, and give its path")
		}
	}
}

func (v *validator) execTimeout(text string) {
	if text == "" {
		return
	}
	const hint = `write for example "30s", "10m" or "1h30m"`
	at := v.path("exec.timeout")
	switch d, err := time.ParseDuration(text); {
	case err != nil:
		v.invalid(at, fmt.Sprintf("%q is not a time", clipText(text)), hint)
	case d < execTimeoutMin || d > ExecTimeoutMax || d%time.Second != 0:
		v.invalid(at, fmt.Sprintf("%q is not a number of whole seconds from one to a day", clipText(text)), hint)
	}
}

// tries checks how often a command is run: an operation of the agent lasts a day at most.
func (v *validator) tries(field string, e *Exec) {
	switch at := v.path(field); {
	case e.Tries < 0 || e.Tries > ExecTriesMax:
		v.invalid(at, fmt.Sprintf("%d is no number of tries", e.Tries), fmt.Sprintf("1 to %d: what has failed is tried again later in any case, for ever", ExecTriesMax))
	case e.Tries > 1 && time.Duration(e.Tries)*e.TimeoutOrDefault() > ExecTimeoutMax:
		v.invalid(at, fmt.Sprintf("%d tries of %v take more than a day", e.Tries, e.TimeoutOrDefault()), "fewer of them, or a shorter exec.timeout")
	}
}

func (v *validator) environment(field string, variables map[string]string) {
	if !v.atMost(v.path(field), len(variables), variablesMax, "variables", "put them into a file that the command reads") {
		return
	}
	size := 0
	for _, name := range sortedKeys(variables) {
		size += len(name) + len(variables[name])
		switch at := keyPath(v.path(field), name); {
		case !isVariableName(name):
			v.invalid(at, fmt.Sprintf("%q is not a name of a variable", clipText(name)), "letters, digits and _, not a digit first")
		case strings.Contains(variables[name], "\x00"):
			v.invalid(at, "the value holds a NUL byte, which no program can be given", "")
		}
	}
	if size > environmentBytesMax {
		v.invalid(v.path(field), fmt.Sprintf("the variables have %d bytes, at most %d are allowed", size, environmentBytesMax), "put them into a file that the command reads")
	}
}

// isVariableName is what POSIX lets a portable program have, 8.1 of its base definitions, with small letters too.
func isVariableName(s string) bool {
	return isMadeOf(s, "_") && !isDigit(s[0])
}

func (v *validator) umask(field string, m Mode) {
	if m == "" {
		return
	}
	if bits, ok := m.Bits(); !ok || bits > umaskMax {
		v.invalid(v.path(field), fmt.Sprintf("%q is not an octal umask up to 0777", clipText(string(m))), `write octal digits, for example "0027"`)
	}
}

func (v *validator) exitCodes(field string, codes []int) {
	if !v.atMost(v.path(field), len(codes), exitCodeMax+1, "exit codes", "") {
		return
	}
	for i, code := range codes {
		switch at := v.path(indexPath(field, i)); {
		case code < 0 || code > exitCodeMax:
			v.invalid(at, fmt.Sprintf("%d is not an exit code", code), fmt.Sprintf("0 to %d", exitCodeMax))
		case slices.Contains(codes[:i], code):
			v.invalid(at, fmt.Sprintf("exit code %d is there already", code), "")
		}
	}
}
