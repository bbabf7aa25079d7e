package tokens

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// TestShowToken: what a host joins with is the line, where the server has one; standard output has the secret and nothing else.
func TestShowToken(t *testing.T) {
	for _, c := range []struct {
		name     string
		status   map[string]any
		out, err string
	}{
		{"of a person", map[string]any{"token": "SECRET"}, "SECRET\n", "token t, good until 2030-01-01T00:00:00Z; it is shown this once:\n"},
		{"of a host", map[string]any{"token": "SECRET", "joinLine": "tako://LINE/SECRET"}, "tako://LINE/SECRET\n", "a host joins with `tako-agent join -` and this line"},
	} {
		var out, err strings.Builder
		p := &Shell{Out: &out, Say: func(text string) { err.WriteString(text + "\n") }}
		made := &unstructured.Unstructured{Object: map[string]any{
			"metadata": map[string]any{"name": "t"}, "spec": map[string]any{"expires": "2030-01-01T00:00:00Z"}, "status": c.status,
		}}
		if e := p.show(made, &flags{joins: "a host joins with `tako-agent join -`"}); e != nil || out.String() != c.out || !strings.Contains(err.String(), c.err) || strings.Contains(err.String(), "SECRET") {
			t.Errorf("%s: %q, %q, %v", c.name, out.String(), err.String(), e)
		}
	}
	p := &Shell{Out: &strings.Builder{}, Say: func(string) {}}
	if e := p.show(&unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": "t"}}}, &flags{}); e == nil {
		t.Error("that there is no secret is not told")
	}
}
