package workload

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/reason"
)

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// PortVariable is the environment variable by which a program learns the number of a port: PORT_HTTP_ADMIN of http-admin.
func PortVariable(port string) string {
	return "PORT_" + strings.ToUpper(strings.ReplaceAll(port, "-", "_"))
}

// ExpandEnv fills every $(NAME) of a value. $$( stands for a literal $(, and what is no reference stays as it is. It stops at the first
// name that lookup does not know, and returns it.
func ExpandEnv(value string, lookup func(name string) (string, bool)) (expanded, unknown string) {
	var out strings.Builder
	for rest := value; ; {
		before, after, found := strings.Cut(rest, "$(")
		if !found {
			out.WriteString(rest)
			return out.String(), ""
		}
		if literal, escaped := strings.CutSuffix(before, "$"); escaped {
			out.WriteString(literal + "$(")
			rest = after
			continue
		}
		name, behind, closed := strings.Cut(after, ")")
		if !closed || !declare.IsVariableName(name) {
			out.WriteString(before + "$(")
			rest = after
			continue
		}
		text, known := lookup(name)
		if !known {
			return "", name
		}
		out.WriteString(before + text)
		rest = behind
	}
}

// EscapeEnv is the value that ExpandEnv makes a text of, whatever is in that.
func EscapeEnv(text string) string { return strings.ReplaceAll(text, "$(", "$$(") }

// EnvBytesMax is how many bytes the names and values of the variables of one task may have together: as those of an exec of a NodeConfig.
const EnvBytesMax = 64 << 10

// environment checks the variables of a task. A value may take from those above it only, so that there is no circle.
func (v *validator) environment(at string, t *Task) {
	at += ".env"
	if !v.atMost(at, len(t.Env), environmentMax, "variables") {
		return
	}
	given := map[string]string{} // the names above, with where they stand
	var all []string
	for i := range t.Ports {
		name := PortVariable(t.Ports[i].Name)
		given[name], all = "", append(all, name)
	}
	for i := range t.Env {
		all = append(all, t.Env[i].Name)
	}
	size := 0
	for i := range t.Env {
		e, at := &t.Env[i], declare.IndexPath(at, i)
		size += len(e.Name) + len(e.Value)
		switch first, twice := given[e.Name]; {
		case e.Name == "":
			v.missing(at, "name", "")
		case !declare.IsVariableName(e.Name):
			v.invalid(at+".name", fmt.Sprintf("%q is not a name of a variable", declare.ClipText(e.Name)), "letters, digits and _, not a digit first")
		case twice && first == "":
			v.fault(at+".name", reason.DuplicateName, fmt.Sprintf("%s is what tells the program the number of a port", e.Name), "choose another name")
		default:
			v.unique(given, at+".name", e.Name, "the variable")
		}
		v.value(at, e, given, all)
		if e.Name != "" && given[e.Name] == "" {
			given[e.Name] = at + ".name"
		}
	}
	if size > EnvBytesMax {
		v.invalid(at, fmt.Sprintf("the variables have %d bytes, at most %d are allowed", size, EnvBytesMax), "put them into a file that the program reads")
	}
}

func (v *validator) value(at string, e *EnvVar, given map[string]string, all []string) {
	if strings.Contains(e.Value, "\x00") {
		v.invalid(at+".value", "the value holds a NUL byte, which no program can be given", "")
	}
	_, unknown := ExpandEnv(e.Value, func(name string) (string, bool) {
		_, known := given[name]
		return "", known && name != e.Name
	})
	switch {
	case unknown == "":
	case unknown == e.Name:
		v.invalid(at+".value", fmt.Sprintf("$(%s) is the variable itself", unknown), "write $$( for a literal $(")
	case contains(all, unknown):
		v.invalid(at+".value", fmt.Sprintf("$(%s) stands further down", declare.ClipText(unknown)), "move it above this variable: so no two can wait for each other")
	default:
		v.fault(at+".value", reason.UnknownName, fmt.Sprintf("$(%s) is no variable of the task", declare.ClipText(unknown)), strings.TrimSuffix("write $$( for a literal $(; "+declare.DidYouMean(unknown, all), "; "))
	}
	from := e.ValueFrom
	if from == nil {
		return
	}
	if e.Value != "" {
		v.notAllowed(at+".valueFrom", "there is a value already", "keep one of value and valueFrom")
	}
	at += ".valueFrom"
	v.oneOf(at, "where the value is from", []string{"secret", "configMap", "field"}, from.Secret != nil, from.ConfigMap != nil, from.Field != "")
	v.key(at+".secret", from.Secret)
	v.key(at+".configMap", from.ConfigMap)
	if from.Field != "" && !isField(from.Field, all) {
		v.fault(at+".field", reason.UnknownName, fmt.Sprintf("%q is not known of an instance", declare.ClipText(from.Field)), declare.DidYouMean(from.Field, fieldNames()))
	}
}

// fieldNames are what a variable may take of what is known of an instance.
func fieldNames() []string {
	return []string{"instance.name", "instance.index", "workload.name", "workload.namespace", "node.name", "node.address", "node.labels['KEY']", "ports['NAME']", "resources.cpu", "resources.memory"}
}

// isField reads a name of what is known of an instance; of a port, it is one of the task.
func isField(field string, variables []string) bool {
	if key, ok := indexed(field, "node.labels"); ok {
		return len(declare.CheckLabelKey("", key)) == 0
	}
	if port, ok := indexed(field, "ports"); ok {
		return contains(variables, PortVariable(port))
	}
	return !strings.Contains(field, "[") && contains(fieldNames(), field)
}

// indexed takes the key out of name['key'].
func indexed(field, name string) (key string, ok bool) {
	rest, ok := strings.CutPrefix(field, name+"['")
	if !ok {
		return "", false
	}
	return strings.CutSuffix(rest, "']")
}
