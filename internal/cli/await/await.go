// Package await decides whether what somebody waits for is there, on its way, or cannot come. It looks at one object at a
// time and knows neither clock nor server:
//
//	Parse  "condition=Ready" -> Goal
//	Goal.Look(object)        -> Verdict: Reached, Pending or Stalled, with words
//
// A state that is older than the object's generation proves nothing: where the status says which generation it is about
// and that is an older one, the verdict is Pending.
package await

import (
	"fmt"
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/util/jsonpath"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/internal/reason"
)

// State is how far a wait is.
type State uint8

// The states of a wait.
const (
	Pending State = iota // not yet
	Reached              // it is as it should be
	Stalled              // it cannot come until somebody changes something
)

// Verdict is what one look has found.
type Verdict struct {
	State State
	// Words say what is there: for Pending what is missing, for Stalled why.
	Words string
}

// Goal is what is waited for.
type Goal struct {
	text      string
	deletion  bool
	creation  bool
	converged bool
	request   string // that a Source must have done
	condition string
	status    string // that the condition must have
	path      *jsonpath.JSONPath
	value     string
	anyValue  bool // any value of the path will do
}

// Parse reads a goal: delete, create, converged, condition=TYPE[=STATUS] (True when no status is given), jsonpath={PATH}=VALUE,
// or jsonpath={PATH} for any value at all. Errors are *reason.Error with Usage.
func Parse(text string) (Goal, error) {
	g := Goal{text: text}
	kind, rest, _ := strings.Cut(text, "=")
	switch kind {
	case "delete":
		return Gone(), usageIf(text != "delete", text)
	case "create":
		g.creation = true
		return g, usageIf(text != "create", text)
	case convergedGoal:
		g.converged = true
		return g, usageIf(text != convergedGoal, text)
	case "condition":
		var given bool
		g.condition, g.status, given = strings.Cut(rest, "=")
		if !given {
			g.status = "True"
		}
		return g, usageIf(g.condition == "" || g.status == "", text)
	case "jsonpath":
		return g.parsePath(rest)
	}
	return g, usageIf(true, text)
}

// Gone is the goal that an object is gone.
func Gone() Goal { return Goal{text: "delete", deletion: true} }

func usageIf(wrong bool, text string) error {
	if !wrong {
		return nil
	}
	return &reason.Error{Code: reason.Usage, Doing: fmt.Sprintf("read --for %q", text),
		Hint: "write delete, create, converged, condition=TYPE, condition=TYPE=False or jsonpath='{.status.x}'=VALUE"}
}

func (g Goal) parsePath(text string) (Goal, error) {
	text = strings.Trim(text, "'\"")
	end := strings.LastIndexByte(text, '}')
	if !strings.HasPrefix(text, "{") || end < 0 {
		return g, usageIf(true, g.text)
	}
	g.path = jsonpath.New("for").AllowMissingKeys(true)
	if err := g.path.Parse(text[:end+1]); err != nil {
		return g, &reason.Error{Code: reason.Usage, Doing: fmt.Sprintf("read --for %q", g.text), Cause: err}
	}
	rest := strings.Trim(text[end+1:], "'\"")
	value, given := strings.CutPrefix(rest, "=")
	if rest != "" && !given {
		return g, usageIf(true, g.text)
	}
	g.value, g.anyValue = strings.Trim(value, "'\""), !given
	return g, nil
}

// String is the goal as it was written.
func (g Goal) String() string { return g.text }

// Deletion reports whether the goal is that the object is gone.
func (g Goal) Deletion() bool { return g.deletion }

// Creation reports whether the goal is that there is such an object.
func (g Goal) Creation() bool { return g.creation }

// Look judges an object; nil is one that does not exist.
func (g Goal) Look(object *unstructured.Unstructured) Verdict {
	switch {
	case object == nil && g.deletion:
		return Verdict{Reached, "it is gone"}
	case object == nil:
		return Verdict{Pending, "there is no such object yet"}
	case g.creation:
		return Verdict{Reached, "it exists"}
	case g.deletion:
		return g.lookDeletion(object)
	}
	var verdict Verdict
	switch {
	case g.request != "":
		return g.lookHandled(object)
	case g.converged:
		return lookConverged(object)
	case g.condition == v1alpha1.ConditionDrained:
		return g.lookDrained(object)
	case g.path != nil:
		verdict = g.lookPath(object)
	default:
		verdict = g.lookCondition(object)
	}
	if verdict.State == Reached {
		return verdict
	}
	if stalled, ok := conditionOf(object, "Stalled"); ok && stalled.status == "True" && !stalled.isOld(object) && g.condition != "Stalled" {
		return Verdict{Stalled, stalled.words()}
	}
	return verdict
}

func (g Goal) lookDeletion(object *unstructured.Unstructured) Verdict {
	if object.GetDeletionTimestamp() == nil {
		return Verdict{Pending, "it exists, and nobody has asked for its end"}
	}
	finalizers, _, _ := unstructured.NestedStringSlice(object.Object, "spec", "finalizers") // of a namespace
	if finalizers = append(object.GetFinalizers(), finalizers...); len(finalizers) > 0 {
		return Verdict{Pending, "it waits for " + strings.Join(finalizers, ", ")}
	}
	return Verdict{Pending, "it is about to go"}
}

func (g Goal) lookCondition(object *unstructured.Unstructured) Verdict {
	c, ok := conditionOf(object, g.condition)
	switch {
	case !ok:
		return Verdict{Pending, "it has no condition " + g.condition + " yet"}
	case c.isOld(object):
		return Verdict{Pending, fmt.Sprintf("condition %s is about generation %d, and generation %d is declared", g.condition, c.generation, object.GetGeneration())}
	case strings.EqualFold(c.status, g.status):
		return Verdict{Reached, c.words()}
	}
	return Verdict{Pending, c.words()}
}

// lookDrained judges a drain. What else a node has come to says nothing of that, and where the reason is a code it does not go on.
func (g Goal) lookDrained(object *unstructured.Unstructured) Verdict {
	verdict := g.lookCondition(object)
	if c, ok := conditionOf(object, g.condition); ok && verdict.State == Pending && !c.isOld(object) {
		if _, err := reason.ParseCode(c.reason); err == nil {
			verdict.State = Stalled
		}
	}
	return verdict
}

func (g Goal) lookPath(object *unstructured.Unstructured) Verdict {
	results, err := g.path.FindResults(object.Object)
	if err != nil {
		return Verdict{Pending, err.Error()}
	}
	var found []string
	for _, list := range results {
		for _, v := range list {
			found = append(found, valueText(v))
		}
	}
	switch {
	case len(found) == 0:
		return Verdict{Pending, "there is no value yet"}
	case g.anyValue:
		return Verdict{Reached, "the value is " + strings.Join(found, ", ")}
	case len(found) == 1 && found[0] == g.value:
		return Verdict{Reached, "the value is " + g.value}
	}
	return Verdict{Pending, "the value is " + strings.Join(found, ", ")}
}

func valueText(v reflect.Value) string {
	if v.Kind() == reflect.Interface || v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	if !v.IsValid() {
		return "null"
	}
	return fmt.Sprint(v.Interface())
}

// condition is one of status.conditions.
type condition struct {
	kind, status, reason, message string
	generation                    int64 // 0 where neither the condition nor the status says one
}

// isOld reports whether the condition is about an earlier generation than the declared one.
func (c condition) isOld(object *unstructured.Unstructured) bool {
	return c.generation > 0 && c.generation < object.GetGeneration()
}

func (c condition) words() string {
	text := c.kind + " is " + c.status
	if c.reason != "" {
		text += " (" + c.reason + ")"
	}
	if c.message != "" {
		text += ": " + c.message
	}
	return text
}

func conditionOf(object *unstructured.Unstructured, kind string) (condition, bool) {
	list, _, err := unstructured.NestedSlice(object.Object, "status", "conditions")
	if err != nil {
		return condition{}, false
	}
	for _, item := range list {
		fields, ok := item.(map[string]any)
		if !ok || !strings.EqualFold(text(fields["type"]), kind) {
			continue
		}
		c := condition{kind: text(fields["type"]), status: text(fields["status"]), reason: text(fields["reason"]), message: text(fields["message"])}
		c.generation, _ = fields["observedGeneration"].(int64)
		if c.generation == 0 {
			c.generation, _, _ = unstructured.NestedInt64(object.Object, "status", "observedGeneration")
		}
		return c, true
	}
	return condition{}, false
}

func text(v any) string {
	s, _ := v.(string)
	return s
}
