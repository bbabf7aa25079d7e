package source

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/e2e/host"
)

const (
	// objectsUsual and objectsSoak are how many the repository of TestManyObjects declares: ten thousand take minutes.
	objectsUsual, objectsSoak = 2_000, 10_000
	// loadTime bounds the apply of all of them, on a busy machine.
	loadTime = 15 * time.Minute

	hookToken = "what-both-sides-know"
)

// TestManyObjects: a repository of many objects is applied whole; one that is changed is one write; a look that finds nothing new is one
// list of refs, no fetch and no write, and so is the first one of a server that has started again. How long that takes, and the memory,
// is logged and not judged: `go run ./bench -only source` does.
func TestManyObjects(t *testing.T) {
	t.Parallel()
	n := objectsUsual
	if os.Getenv("TAKO_SOAK") != "" {
		n = objectsSoak
	}
	f := newFleet(t)
	r := newRepository(t, f.repositories, "large")
	g := newForge(t, f.repositories, "of-the-forge")
	f.Apply(g.secret())
	f.Apply("apiVersion: v1\nkind: Secret\nmetadata: {name: hook, namespace: ops}\nstringData: {token: " + hookToken + "}\n")
	f.allow("large", "cluster-admin")
	files := map[string]string{}
	for i := range n {
		files[fmt.Sprintf("d%02d/m%05d.yaml", i%100, i)] = text(fmt.Sprintf("m-%05d", i), "1")
	}
	l := &load{fleet: f, spec: fmt.Sprintf("{url: %q, credentials: forge, interval: 24h, webhook: {type: GitHub, secret: hook}}", g.url(r))}

	l.step(fmt.Sprintf("the first apply of %d objects", n), r.commit("all", files), func() { f.look("large", l.spec) })
	before := l.versions()
	if len(before) != n {
		t.Fatalf("%d objects are there, want %d", len(before), n)
	}
	call := func() {
		if got := f.call(f.caller(), "ops/large", `{"ref": "refs/heads/main"}`, hookToken); got != http.StatusAccepted {
			t.Fatalf("a good call is answered by %d", got)
		}
	}
	g.take()
	l.step("one is changed", r.commit("one", map[string]string{"d42/m00042.yaml": text("m-00042", "2")}), call)
	t.Logf("for that, git has asked for %q", g.take())
	f.is("m-00042", "2")
	after := l.versions()
	wrote := slices.DeleteFunc(slices.Collect(maps.Keys(after)), func(name string) bool { return after[name] == before[name] })
	if !slices.Equal(wrote, []string{"m-00042"}) || len(after) != n {
		t.Errorf("one of %d objects was changed, and %d were written: %v", n, len(wrote), wrote[:min(len(wrote), 20)])
	}

	l.quiet(g, "nothing", call)
	l.quiet(g, "applied", func() {
		f.Server.Stop(t)
		f.Server.Start(t)
	})
}

// load is a Source of many objects, and what is measured of it.
type load struct {
	*fleet
	spec string
	peak int64 // of the anonymous memory that is resident, bytes
	// applied is how many commits were.
	applied int
}

// step asks for a commit, waits until it is applied, and logs how long that took.
func (l *load) step(what, commit string, ask func()) {
	l.Helper()
	l.peak = 0
	began := time.Now()
	ask()
	l.until(commit)
	took := time.Since(began).Round(10 * time.Millisecond)
	// The last that is written about a commit is the Event that it is applied, a moment later: as one of its own, or as one more.
	l.applied++
	host.Eventually(l.T, loadTime, "Events tell of each commit that was applied", func() (string, bool) {
		said, err := l.Try("get", "events", "-n", "ops", "-o", `jsonpath={range .items[?(@.reason=="Applied")]}{.count} {end}`)
		told := 0
		for word := range strings.FieldsSeq(said) {
			n, _ := strconv.Atoi(word)
			told += max(n, 1)
		}
		return fmt.Sprintf("%s %v", said, err), err == nil && told == l.applied
	})
	l.Logf("%s: %s, %d MiB at most", what, took, l.peak>>20)
	l.memory("after that")
}

// quiet does what makes the Source look, with a result, and checks that this costs one list of refs and nothing else.
func (l *load) quiet(g *forge, result string, do func()) {
	l.Helper()
	objects, source, revision := l.versions(), l.source("large"), l.revision()
	metric := fmt.Sprintf("tako_source_looks_total{result=%q}", result)
	looks := l.Metric(metric)
	pid := l.Server.Run.Cmd.Process.Pid
	g.take()
	began := time.Now()
	l.peak = 0
	do()
	if l.Server.Run.Cmd.Process.Pid != pid {
		looks = 0 // it counts anew
	}
	host.Eventually(l.T, loadTime, "a look with the result "+result, func() (string, bool) {
		l.peak = max(l.peak, l.resident())
		now := l.Metric(metric)
		return fmt.Sprint(now), now > looks
	})
	took := time.Since(began).Round(10 * time.Millisecond)
	l.Logf("a look with the result %s: %s, %d MiB at most", result, took, l.peak>>20)
	if asked := g.take(); !slices.Equal(asked, []string{"ls-refs"}) {
		l.Errorf("the look asked the forge for %q", asked)
	}
	if now := l.revision(); now != revision {
		l.Errorf("something was written though nothing is new: the store was at revision %s, and is at %s", revision, now)
	}
	if !maps.Equal(l.versions(), objects) {
		l.Error("objects were written though nothing is new")
	}
	if now := l.source("large"); now.ResourceVersion != source.ResourceVersion {
		l.Errorf("the Source was written though nothing is new: %+v, and was %+v", now.Status, source.Status)
	}
	l.memory("after that")
}

// until waits until a commit is applied, and notes how much memory the server has meanwhile.
func (l *load) until(commit string) {
	l.Helper()
	host.Eventually(l.T, loadTime, "commit "+commit+" is applied", func() (string, bool) {
		l.peak = max(l.peak, l.resident())
		s := l.source("large")
		return fmt.Sprintf("%+v", s.Status), s.Status.Applied != nil && s.Status.Applied.ID == commit && ready(&s) &&
			s.Status.HandledRequest == s.Annotations[v1alpha1.AnnotationReconcile]
	})
}

var anonymous = regexp.MustCompile(`RssAnon:\s+(\d+) kB`)

// resident is the server's memory that no file is behind, in bytes.
func (l *load) resident() int64 {
	l.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", l.Server.Run.Cmd.Process.Pid))
	must(l.T, err)
	m := anonymous.FindSubmatch(status)
	if m == nil {
		l.Fatalf("no RssAnon in\n%s", status)
	}
	kib, err := strconv.ParseInt(string(m[1]), 10, 64)
	must(l.T, err)
	return kib << 10
}

func (l *load) memory(when string) {
	l.Helper()
	l.Logf("%s the server has %d MiB", when, l.resident()>>20)
}

// versions are the resource versions of the objects.
func (l *load) versions() map[string]string {
	l.Helper()
	ctx, cancel := context.WithTimeout(l.Context(), loadTime)
	defer cancel()
	list, err := l.api().CoreV1().ConfigMaps("prod").List(ctx, metav1.ListOptions{})
	must(l.T, err)
	all := map[string]string{}
	for i := range list.Items {
		if c := &list.Items[i]; strings.HasPrefix(c.Name, "m-") {
			all[c.Name] = c.ResourceVersion
		}
	}
	return all
}

// revision is that of the whole store: every write of anything makes another one.
func (l *load) revision() string {
	l.Helper()
	ctx, cancel := context.WithTimeout(l.Context(), loadTime)
	defer cancel()
	list, err := l.api().CoreV1().Namespaces().List(ctx, metav1.ListOptions{Limit: 1})
	must(l.T, err)
	return list.ResourceVersion
}
