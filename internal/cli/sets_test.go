package cli

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"tako.dev/tako/internal/cli/prune"
	"tako.dev/tako/internal/cli/remote"
	"tako.dev/tako/internal/cli/settings"
	"tako.dev/tako/internal/reason"
)

// setModel is what must be there: for each object the set that it is of; others is what nobody of the sets made.
type setModel map[string]string

const others = "others"

// objectNames are the objects of the model, as the name of a kind and of an object.
func objectNames() []string {
	var names []string
	for _, kind := range []string{"configmap", "clusternodeconfig.tako.dev", "secret"} {
		for _, name := range []string{"model-a", "model-b", "model-c"} {
			names = append(names, kind+"/"+name)
		}
	}
	return names
}

func objectText(name string) string {
	kind, name, _ := strings.Cut(name, "/")
	switch kind {
	case "configmap":
		return "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: " + name + "}\ndata: {a: b}\n"
	case "secret":
		return "apiVersion: v1\nkind: Secret\nmetadata: {name: " + name + "}\nstringData: {a: b}\n"
	}
	return "apiVersion: tako.dev/v1alpha1\nkind: ClusterNodeConfig\nmetadata: {name: " + name + "}\nspec: {resources: []}\n"
}

// apply is what applying and pruning must do: the exit code, and the model after it.
func (m setModel) apply(set string, declared []string, all bool) (reason.Exit, setModel) {
	stays, goes := 0, 0
	after := maps.Clone(m)
	for name, of := range m {
		isDeclared := slices.Contains(declared, name)
		switch {
		case of != set && isDeclared:
			return reason.ExitConflict, m
		case of == set && isDeclared:
			stays++
		case of == set:
			goes++
			delete(after, name)
		}
	}
	if goes > 0 && stays == 0 && !all {
		return reason.ExitConflict, m
	}
	for _, name := range declared {
		after[name] = set
	}
	return reason.ExitOK, after
}

// TestSetsAgainstModel applies and prunes two sets at random while others make and delete objects, with labels that they have
// copied too. After each step exactly what the model says is there: no set touches what is not its own.
func TestSetsAgainstModel(t *testing.T) {
	const steps = 25 // some 100 ms each on a busy machine; every case of the model comes several times in some runs
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	c := newConsole(t)
	server := c.server(t)
	t.Cleanup(func() {
		for name := range there(t, server) {
			c.run(context.Background(), strings.NewReader(""), "delete", name) // the tests share the server
		}
	})
	model, exits := setModel{}, map[reason.Exit]int{}
	for step := range steps {
		name := objectNames()[random.IntN(len(objectNames()))]
		if random.IntN(4) == 0 { // others
			if _, isThere := model[name]; isThere {
				c.must(t, "delete", name, "-n", "default")
				delete(model, name)
			} else {
				createCopy(t, server, name, []string{"default.one", "default.two", ""}[random.IntN(3)])
				model[name] = others
			}
			continue
		}
		set := []string{"one", "two"}[random.IntN(2)]
		var declared []string
		for _, n := range objectNames() {
			if of, isThere := model[n]; n == name || random.IntN(3) == 0 && (!isThere || of == set) {
				declared = append(declared, n)
			}
		}
		all := random.IntN(4) == 0
		exit, after := model.apply(set, declared, all)
		c.applySet(t, fmt.Sprintf("seed %d, step %d", seed, step), set, declared, all, exit)
		if got := there(t, server); !maps.Equal(got, after.names()) {
			t.Fatalf("seed %d, step %d: set %s of %v (all: %v)\nbefore %v\nafter  %v\nwant   %v", seed, step, set, declared, all, model, got, after)
		}
		model = after
		exits[exit]++
	}
	if exits[reason.ExitOK] == 0 {
		t.Errorf("nothing was applied: %v", exits)
	}
}

func (c *console) applySet(t *testing.T, step, set string, declared []string, all bool, want reason.Exit) {
	t.Helper()
	var texts []string
	for _, name := range declared {
		texts = append(texts, objectText(name))
	}
	args := []string{"apply", "-f", "-", "--set", set, "--prune"}
	if all {
		args = append(args, "--prune-all")
	}
	if out, errs, exit := c.run(t.Context(), strings.NewReader(strings.Join(texts, "---\n")), args...); exit != want {
		t.Fatalf("%s: set %s of %v: exit %d, want %d\n%s%s", step, set, declared, exit, want, out, errs)
	}
}

func (c *console) must(t *testing.T, args ...string) {
	t.Helper()
	if out, errs, exit := c.run(t.Context(), strings.NewReader(""), args...); exit != reason.ExitOK {
		t.Fatalf("%v: exit %d\n%s%s", args, exit, out, errs)
	}
}

// server is the test's server, as others speak to it.
func (c *console) server(t *testing.T) *remote.Server {
	t.Helper()
	target, err := settings.Resolve(settings.Flags{}, func(name string) string { return c.env[name] })
	if err != nil {
		t.Fatal(err)
	}
	server, err := remote.New(target.Config, remote.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return server
}

// createCopy makes an object as others do, with a label of a set that they have copied.
func createCopy(t *testing.T, server *remote.Server, name, label string) {
	t.Helper()
	kindName, objectName, _ := strings.Cut(name, "/")
	kind, err := server.Find(t.Context(), kindName)
	if err != nil {
		t.Fatal(err)
	}
	object := &unstructured.Unstructured{Object: map[string]any{"data": map[string]any{"a": "Yg=="}}}
	if kind.Kind == "ClusterNodeConfig" {
		object.Object = map[string]any{"spec": map[string]any{"resources": []any{}}}
	}
	object.SetGroupVersionKind(kind.GroupVersionKind)
	object.SetName(objectName)
	if kind.Namespaced {
		object.SetNamespace("default")
	}
	if label != "" {
		object.SetLabels(map[string]string{prune.Label: label})
	}
	if _, err := server.Create(t.Context(), kind, object); err != nil {
		t.Fatal(err)
	}
}

// names are the objects of the model.
func (m setModel) names() map[string]bool {
	names := map[string]bool{}
	for name := range m {
		names[name] = true
	}
	return names
}

// there are the objects of the model that the server has.
func there(t *testing.T, server *remote.Server) map[string]bool {
	t.Helper()
	found := map[string]bool{}
	ctx := context.WithoutCancel(t.Context()) // it is asked in a cleanup too
	for _, plural := range []string{"configmaps", "clusternodeconfigs", "secrets"} {
		kind, err := server.Find(ctx, plural)
		if err != nil {
			t.Fatal(err)
		}
		_, err = server.List(ctx, remote.Query{Kind: kind}, func(o *unstructured.Unstructured) error {
			if ref := remote.RefOf(kind, o); slices.Contains(objectNames(), ref.String()) {
				found[ref.String()] = true
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return found
}
