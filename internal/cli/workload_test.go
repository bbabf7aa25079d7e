package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"tako.dev/tako/internal/reason"
)

// patched sends a merge patch as programs do that are not tako.
func patched(t *testing.T, path, body string) {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", admin)
	if err != nil {
		t.Fatal(err)
	}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPatch, config.Host+"/apis/tako.dev/v1alpha1/namespaces/default/"+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/merge-patch+json")
	resp, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s", path, resp.Status)
	}
}

// TestUndoOfAWorkload: the template of an older revision is declared again, whole, and nothing else of the workload changes.
func TestUndoOfAWorkload(t *testing.T) {
	c := newConsole(t)
	must := func(in string, args ...string) string {
		t.Helper()
		out, errs, exit := c.run(t.Context(), strings.NewReader(in), args...)
		if exit != reason.ExitOK {
			t.Fatalf("%v: exit %d: %s%s", args, exit, out, errs)
		}
		return out
	}
	t.Cleanup(func() { c.run(context.Background(), strings.NewReader(""), "delete", "workload/undone") })
	const declared = "apiVersion: tako.dev/v1alpha1\nkind: Workload\nmetadata: {name: undone}\nspec:\n  replicas: 0\n  priority: 7\n  template:\n    tasks: [{name: web, command: [/bin/new]}]\n"
	must(declared, "apply", "-f", "-")
	uid := must("", "get", "workload/undone", "-o", "jsonpath={.metadata.uid}")
	revision := func(name, of string) {
		must(fmt.Sprintf(`{"apiVersion": "tako.dev/v1alpha1", "kind": "Revision", "metadata": {"name": %q, "labels": {"tako.dev/workload": "undone"}, "annotations": {"tako.dev/revision": "1000"}},
			"spec": {"source": {"kind": "Workload", "name": "undone", "uid": %q}, "template": {"terminationGrace": "5s", "tasks": [{"name": "web", "command": ["/bin/old"]}, {"name": "side", "command": ["/bin/side"]}]}}}`,
			name, strings.TrimSpace(of)), "apply", "-f", "-")
	}
	revision("undone-old", uid)
	revision("undone-others", "of-an-earlier-one-of-that-name")
	if _, errs, exit := c.run(t.Context(), strings.NewReader(""), "rollout", "undo", "workload/undone", "--to-revision", "undone-others"); exit != reason.ExitNotFound || !strings.Contains(errs, "it has no revision undone-others") {
		t.Errorf("of another workload of that name: exit %d: %s", exit, errs)
	}
	if out := must("", "rollout", "undo", "workload/undone", "--to-revision", "undone-old"); out != "workload.tako.dev/undone declares undone-old again\n" {
		t.Error(out)
	}
	if out := must("", "why", "revision/undone-old"); !strings.HasPrefix(out, "● revision undone-old of workload/undone -n default\n") || !strings.Contains(out, "0 instances have it, which is number 100") {
		t.Error(out)
	}
	if out := must("", "why", "revision/undone-others"); !strings.Contains(out, "it is of an earlier workload of that name") {
		t.Error(out)
	}
	var w struct {
		Spec struct {
			Priority int
			Template struct {
				TerminationGrace string
				Tasks            []struct{ Name string }
			}
		}
	}
	if err := json.Unmarshal([]byte(must("", "get", "workload/undone", "-o", "json")), &w); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprintf("%+v", w.Spec); got != "{Priority:7 Template:{TerminationGrace:5s Tasks:[{Name:web} {Name:side}]}}" {
		t.Error(got)
	}
	var history []struct {
		Name   string
		Number int
	}
	if err := json.Unmarshal([]byte(must("", "rollout", "history", "workload/undone", "-o", "json")), &history); err != nil {
		t.Fatal(err)
	}
	listed := 0
	for _, r := range history {
		if r.Name == "undone-others" {
			t.Error("a revision of another workload is listed")
		}
		if r.Name == "undone-old" && r.Number >= 1000 {
			listed++
		}
	}
	if listed != 1 {
		t.Errorf("%+v", history)
	}
	if out := must("", "rollout", "history", "workload/undone"); !strings.HasPrefix(out, "NUMBER  REVISION") || !strings.Contains(out, " undone-old ") {
		t.Error(out)
	}
}

// TestScaledWorkload: what others scale is not taken back by whoever applies the file again, unless he says so.
func TestScaledWorkload(t *testing.T) {
	c := newConsole(t)
	t.Cleanup(func() { c.run(context.Background(), strings.NewReader(""), "delete", "workload/scaled-by-others") })
	const declared = "apiVersion: tako.dev/v1alpha1\nkind: Workload\nmetadata: {name: scaled-by-others}\nspec:\n  replicas: 1\n  template:\n    tasks: [{name: web, command: [/bin/web]}]\n"
	if _, errs, exit := c.run(t.Context(), strings.NewReader(declared), "apply", "-f", "-"); exit != reason.ExitOK {
		t.Fatalf("exit %d: %s", exit, errs)
	}
	patched(t, "workloads/scaled-by-others/scale?fieldManager=scaler", `{"spec":{"replicas":5}}`)
	_, errs, exit := c.run(t.Context(), strings.NewReader(declared), "apply", "-f", "-")
	if exit != reason.ExitConflict || !strings.Contains(errs, "spec.replicas") || !strings.Contains(errs, "scaler") || !strings.Contains(errs, "<stdin>:5:13") {
		t.Errorf("exit %d: %s", exit, errs)
	}
}
