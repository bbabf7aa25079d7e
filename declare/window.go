package declare

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"tako.dev/tako/declare/calendar"
	"tako.dev/tako/internal/reason"
)

// Window is a time in which something may be done: it opens whenever its calendar expression elapses, and stays open for a while.
//
// +k8s:deepcopy-gen=true
// +k8s:openapi-gen=true
// +k8s:openapi-model-package=dev.tako.declare
type Window struct {
	// Opens says when, systemd.time(7): "Sun 02:00", "Mon..Fri 22:00 Europe/Berlin". Without a time zone it is the host's.
	Opens string `json:"opens"`
	// Duration is how long it stays open: "2h", whole minutes up to a week.
	Duration string `json:"duration"`
}

// WindowFor says what waits for a window.
//
// +enum
type WindowFor string

// What waits for a window.
const (
	// WindowForRestarts are notifications: services that restart or reload, commands that run again.
	WindowForRestarts WindowFor = "restarts"
	// WindowForChanges is everything that changes the host.
	WindowForChanges WindowFor = "changes"
	// WindowForNothing is nothing: the resource goes without the windows of its config.
	WindowForNothing WindowFor = "nothing"
)

// Bounds of windows.
const (
	windowsMax        = 32 // ours: far above any real number
	windowDurationMin = time.Minute
	windowDurationMax = 7 * 24 * time.Hour // ours: what is open for longer is no window
)

// Times returns the windows in which something may be done to the resource; none is always. The resource must have passed Validate, and be
// one of Effective.
func (r *Resource) Times() []calendar.Window {
	if r.WindowFor == WindowForNothing {
		return nil
	}
	times := make([]calendar.Window, 0, len(r.Windows))
	for i := range r.Windows {
		if opens, err := calendar.Parse(r.Windows[i].Opens); err == nil {
			times = append(times, calendar.Window{Opens: opens, Duration: durationOr(r.Windows[i].Duration, windowDurationMin)})
		}
	}
	return times
}

// Frozen reports whether all changes of the resource wait for its windows, and not its restarts only.
func (r *Resource) Frozen() bool { return r.WindowFor == WindowForChanges && len(r.Windows) > 0 }

// windowed returns the resource with the windows of its config, where it has none of its own and something of it waits for them.
func (s *NodeConfigSpec) windowed(r Resource) Resource {
	what := cmp.Or(r.WindowFor, s.WindowFor, WindowForRestarts)
	_, b := r.typed()
	if len(r.Windows) == 0 {
		r.Windows = s.Windows
	}
	if len(r.Windows) == 0 || what == WindowForNothing || what == WindowForRestarts && !isNotified(b) {
		r.Windows, r.WindowFor = nil, ""
		return r
	}
	r.WindowFor = ""
	if what == WindowForChanges {
		r.WindowFor = what
	}
	return r
}

// windows checks the windows of a config.
func (v *validator) windows() {
	s := &v.config.Spec
	v.windowList("spec.windows", s.Windows)
	v.windowFor("spec.windowFor", s.WindowFor)
	if s.WindowFor == WindowForNothing {
		v.fault("spec.windowFor", reason.FieldNotAllowed, "the windows of a config are for something", "leave out windows and windowFor")
	}
	if s.WindowFor != "" && len(s.Windows) == 0 {
		v.fault("spec.windowFor", reason.FieldNotAllowed, "there are no windows that something could wait for", "add windows, or leave windowFor out")
	}
}

// ownWindows checks the windows of the resource at hand.
func (v *validator) ownWindows() {
	r := v.resource
	v.windowList(v.path("windows"), r.Windows)
	v.windowFor(v.path("windowFor"), r.WindowFor)
	if r.WindowFor == WindowForNothing && len(r.Windows) > 0 {
		v.fault(v.path("windowFor"), reason.FieldNotAllowed, "the resource has windows, and nothing waits for them", "leave out one of windows and windowFor")
	}
	config := &v.config.Spec
	if r.WindowFor != "" && len(r.Windows) == 0 && len(config.Windows) == 0 {
		v.fault(v.path("windowFor"), reason.FieldNotAllowed, "there are no windows that something could wait for", "add windows to the resource or to spec, or leave windowFor out")
	}
	_, b := r.typed()
	if b != nil && !isNotified(b) && len(r.Windows) > 0 && cmp.Or(r.WindowFor, config.WindowFor, WindowForRestarts) == WindowForRestarts {
		v.fault(v.path("windows"), reason.FieldNotAllowed, r.Title()+" is never restarted, so nothing of it would wait for a window", "write windowFor: changes, or give the windows to the service")
	}
}

func (v *validator) windowFor(path string, w WindowFor) {
	switch w {
	case "", WindowForRestarts, WindowForChanges, WindowForNothing:
	default:
		v.unknownWord(path, "kind of change", string(w), []string{string(WindowForRestarts), string(WindowForChanges), string(WindowForNothing)})
	}
}

func (v *validator) windowList(path string, list []Window) {
	if !v.atMost(path, len(list), windowsMax, "windows", "") {
		return
	}
	for i := range list {
		v.window(indexPath(path, i), &list[i])
	}
}

func (v *validator) window(path string, w *Window) {
	const hint = `write for example opens: "Sun 02:00" and duration: "2h"`
	opens, err := calendar.Parse(w.Opens)
	switch {
	case w.Opens == "":
		v.fault(path+".opens", reason.MissingField, path+` has no "opens"`, hint)
	case err != nil:
		v.invalid(path+".opens", fmt.Sprintf("%q is not a calendar expression: %v", clipText(w.Opens), err), hint)
	case opens.Zone() != "" && opens.Zone() != "UTC" && !strings.Contains(opens.Zone(), "/"):
		v.invalid(path+".opens", fmt.Sprintf("%q is not a time zone", clipText(opens.Zone())), "write UTC, or a name such as Europe/Berlin")
	default:
		if _, ever := opens.Next(time.Time{}, time.UTC); !ever {
			v.invalid(path+".opens", fmt.Sprintf("%q is never", clipText(w.Opens)), hint)
		}
	}
	if w.Duration == "" {
		v.fault(path+".duration", reason.MissingField, path+` has no "duration"`, hint)
		return
	}
	d, err := time.ParseDuration(w.Duration)
	if err != nil || d < windowDurationMin || d > windowDurationMax || d%time.Minute != 0 {
		v.invalid(path+".duration", fmt.Sprintf("%q is not a number of whole minutes up to a week", clipText(w.Duration)), `write for example "30m", "2h" or "1h30m"`)
	}
}
