package answer

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Refusal is why what stands on a host cannot be declared, and what helps.
type Refusal struct{ Words, Hint string }

// Error is the words.
func (r *Refusal) Error() string { return r.Words }

func refused(hint, words string, args ...any) error {
	return &Refusal{Words: fmt.Sprintf(words, args...), Hint: hint}
}

// Adopt changes a config so that it declares what stands on the host, and returns the fields that it has set: none where the host has
// what is declared. The error is a *Refusal, and then the config is as it was: it is all or nothing.
func (a *Answer) Adopt(config *unstructured.Unstructured) (fields []string, err error) {
	if a.Unlooked != "" {
		return nil, refused("", "it cannot be looked at: %s", a.Unlooked)
	}
	list, _, err := unstructured.NestedSlice(config.Object, "spec", "resources") // a copy
	if err != nil {
		return nil, refused("", "%s", err)
	}
	kind, resource, err := a.declared(list)
	if err != nil {
		return nil, err
	}
	for i := range a.Differs {
		d := &a.Differs[i]
		if beside(kind, d.Field) {
			continue
		}
		if err := d.adopt(kind, resource); err != nil {
			return nil, err
		}
		fields = append(fields, d.Field)
	}
	if len(fields) == 0 && len(a.Differs) > 0 {
		return nil, refused("declare it as it is to be: tako edit", "its %s cannot be declared", a.Differs[0].Field)
	}
	if err := unstructured.SetNestedSlice(config.Object, list, "spec", "resources"); err != nil {
		return nil, refused("", "%s", err)
	}
	return fields, nil
}

// declared finds the resource in what a config declares: its type, and the resource within list.
func (a *Answer) declared(list []any) (kind string, resource map[string]any, err error) {
	kind, name, _ := strings.Cut(a.Resource.Title, "/")
	switch kind {
	case "file", "directory", "symlink", "service", "user", "sysctl", "hostname", "timezone":
	default:
		return "", nil, refused("declare it as it is to be: tako edit", "of a %s only the host itself knows how it came to be so", kind)
	}
	for _, item := range list {
		resource, ok := item.(map[string]any)
		if _, same := resource[kind].(map[string]any); ok && same && resource["name"] == name {
			return kind, resource, nil
		}
	}
	return "", nil, refused("", "the config does not declare it any more")
}

// adopt sets one field of a resource to what is there.
func (d *Difference) adopt(kind string, resource map[string]any) error {
	fields := resource[kind].(map[string]any) // declared has looked
	switch kind + "." + d.Field {
	case "service.state", "service.enabled", "service.masked":
		return d.adoptService(fields)
	case "user.comment", "user.home", "user.shell", "sysctl.value", "hostname.name", "timezone.zone":
		if d.Have == "" || strings.HasPrefix(d.Have, `"`) {
			return refused("declare it as it is to be: tako edit", "its %s is not told in full", d.Field)
		}
		return d.setText(fields, d.Have, resource["expand"] == true)
	}
	if kind != "file" && kind != "directory" && kind != "symlink" {
		if d.Field == "state" || d.Field == "" {
			return refused("take it out of the config to have it nowhere", "there is nothing on the host")
		}
		return refused("", "its %s cannot be declared", d.Field)
	}
	switch d.Field {
	case "content":
		return d.adoptContent(fields, resource["expand"] == true)
	case "target":
		return d.setText(fields, d.Have, resource["expand"] == true)
	case "mode", "owner", "group":
		fields[d.Field] = d.Have
		return nil
	case "":
		return refused("take it out of the config to have it nowhere", "there is nothing on the host")
	case "type":
		return refused("move it away on the host, or declare what it is to be", "there is a %s on the host, where a %s is declared", d.Have, kind)
	}
	return refused("", "its %s cannot be declared", d.Field)
}

// beside reports whether a difference is what making a resource so needs, and nothing that is declared, or follows from another one.
func beside(kind, field string) bool {
	switch kind {
	case "service":
		return field == "daemon-reload"
	case "sysctl", "hostname":
		return field == "at boot"
	case "timezone":
		return field != "zone"
	}
	return field == "check" || field == "links"
}

// adoptService sets a field of a service by the words for it.
func (d *Difference) adoptService(fields map[string]any) error {
	switch have, _, _ := strings.Cut(d.Have, " ("); have {
	case "running":
		fields["state"] = have
	case "stopped", "failed":
		fields["state"] = "stopped"
	case "enabled", "disabled":
		fields["enabled"] = have == "enabled"
	case "masked", "not masked":
		fields["masked"] = have == "masked"
	default:
		return refused("declare it as it is to be: tako edit", "it is %s, which cannot be declared", d.Have)
	}
	return nil
}

func (d *Difference) adoptContent(fields map[string]any, expand bool) error {
	if from, ok := fields["contentFrom"].(map[string]any); ok {
		for field, of := range from { // exactly one
			key, _ := of.(map[string]any)
			kind := strings.ToLower(field)
			return refused(fmt.Sprintf("change it there: tako edit %s/%v", kind, key["name"]), "its content comes from a %s", kind)
		}
	}
	if d.Content == nil {
		return refused("", "its content is not told: %s", d.Hidden)
	}
	return d.setText(fields, *d.Content, expand)
}

// setText sets a text that hosts may expand. What is another text on each host cannot be taken from one of them.
func (d *Difference) setText(fields map[string]any, text string, expand bool) error {
	const begins = "$("
	was, _ := fields[d.Field].(string)
	switch {
	case expand && strings.Contains(was, begins):
		return refused("change what is declared: tako edit", "its %s is declared with $(), and another one on each host", d.Field)
	case expand && strings.Contains(text, begins):
		return refused("change what is declared: tako edit, with $$( for $(", "the %s that is there has $( in it, which hosts would expand", d.Field)
	}
	fields[d.Field] = text
	return nil
}
