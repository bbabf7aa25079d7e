package source

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"tako.dev/tako/api/v1alpha1"
)

// because waits until a Source is not ready for a reason, and says words about it.
func (f *fleet) because(name, why string, words ...string) v1alpha1.Source {
	f.Helper()
	return f.until(name, fmt.Sprintf("it is not ready because of %s, and says %q", why, words), func(s *v1alpha1.Source) bool {
		c := meta.FindStatusCondition(s.Status.Conditions, v1alpha1.ConditionReady)
		if c == nil || c.Status != metav1.ConditionFalse || c.Reason != why || s.Status.ObservedGeneration != s.Generation {
			return false
		}
		for _, w := range words {
			if !strings.Contains(c.Message, w) {
				return false
			}
		}
		return true
	})
}

// TestOrder: what depends on another Source is applied when that one is ready, and not before: what it declares may not even be possible
// until then. Sources that wait for one another are told so.
func TestOrder(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	base, site := newRepository(t, f.repositories, "base"), newRepository(t, f.repositories, "site")
	inApp := strings.Replace(text("a", "1"), "namespace: prod", "namespace: app", 1)
	first := site.commit("first", map[string]string{"a.yaml": inApp})
	base.commit("a mistake", map[string]string{"app.yaml": "apiVersion: v1\nkind: Namespace\nmetadata: {nmae: app}\n"})
	f.allow("base", "cluster-admin")
	f.allow("site", "cluster-admin")
	after := func(on string) string {
		return fmt.Sprintf("{url: %q, dependsOn: [{name: %s}]}", "file://"+site.bare, on)
	}
	f.look("site", after("base"))
	f.because("site", "DependencyNotReady", "ops/base")
	f.look("base", spec(base, "main"))
	f.refuses("base", "app.yaml:3")
	if s := f.because("site", "DependencyNotReady", "ops/base"); s.Status.Seen != nil {
		t.Errorf("a Source that waits has looked at its repository: %+v", s.Status.Seen)
	}
	mended := base.commit("mended", map[string]string{"app.yaml": "apiVersion: v1\nkind: Namespace\nmetadata: {name: app}\n"})
	f.look("base", spec(base, "main"))
	f.applies("base", mended)
	f.applies("site", first) // nobody has to ask
	if f.object("configmap/a", "app") == nil {
		t.Error("what the second declares is not there")
	}

	// They wait for one another: no order is right, and both say so. What was applied stays.
	f.look("base", fmt.Sprintf("{url: %q, dependsOn: [{name: site}]}", "file://"+base.bare))
	for _, name := range []string{"base", "site"} {
		s := f.because(name, "DependencyCycle", "ops/base", "ops/site", "depends on")
		if !meta.IsStatusConditionTrue(s.Status.Conditions, v1alpha1.ConditionStalled) || s.Status.Applied == nil {
			t.Errorf("source %s: %+v", name, s.Status)
		}
	}
	if f.object("configmap/a", "app") == nil {
		t.Error("what the second declares is gone")
	}
	second := site.commit("second", map[string]string{"a.yaml": strings.Replace(inApp, `"1"`, `"2"`, 1)})
	f.look("base", spec(base, "main"))
	f.applies("base", mended)
	f.applies("site", second)
}

// unwell is a config that no host can have: a file has nothing below it.
const unwell = `apiVersion: tako.dev/v1alpha1
kind: ClusterNodeConfig
metadata: {name: motd}
spec:
  rollout: {maxUnavailable: "100%"}
  resources:
    - name: file
      file: {path: /etc/taken, content: "a file\n"}
    - name: below
      file: {path: /etc/taken/motd, content: "below a file\n"}
`

// TestWait: with spec.wait a Source is ready when its hosts are as the commit declares. One that cannot be is told after the timeout, with
// the name of the object; what depends on the Source waits so long.
func TestWait(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	h := f.Join("web-1", "--environment", "prod")
	h.Start()
	r, next := newRepository(t, f.repositories, "fleet"), newRepository(t, f.repositories, "next")
	first := r.commit("first", map[string]string{"motd.yaml": motd("one\n")})
	f.allow("fleet", "cluster-admin")
	f.allow("next", "cluster-admin")
	waits := fmt.Sprintf("{url: %q, wait: {timeout: 5s}}", "file://"+r.bare)
	f.look("fleet", waits)
	f.applies("fleet", first)
	// It is ready, so the host has it: nobody waits here.
	if got := h.Read("etc/motd"); got != "one\n" {
		t.Errorf("the Source is ready, and the host has %q", got)
	}
	f.until("fleet", "its host is counted", func(s *v1alpha1.Source) bool {
		return s.Status.Hosts != nil && s.Status.Hosts.Selected == 1 && s.Status.Hosts.Converged == 1
	})

	broken := r.commit("no host can have this", map[string]string{"motd.yaml": unwell})
	f.look("fleet", waits)
	f.notWell(broken, "clusternodeconfig.tako.dev/motd", "web-1", "file/below", "/etc/taken")
	after := next.commit("first", map[string]string{"a.yaml": text("a", "1")})
	f.look("next", fmt.Sprintf("{url: %q, dependsOn: [{name: fleet}]}", "file://"+next.bare))
	f.because("next", "DependencyNotReady", "ops/fleet")

	mended := r.commit("mended", map[string]string{"motd.yaml": motd("two\n")})
	f.look("fleet", waits)
	f.applies("fleet", mended)
	if got := h.Read("etc/motd"); got != "two\n" {
		t.Errorf("the Source is ready, and the host has %q", got)
	}
	f.applies("next", after)

	// A host that is not there is waited for, and not for ever. When it comes back all is well, and nobody has to ask.
	h.Stop()
	away := r.commit("the host is away", map[string]string{"motd.yaml": motd("three\n")})
	f.look("fleet", waits)
	s := f.notWell(away, "clusternodeconfig.tako.dev/motd")
	stalled := meta.FindStatusCondition(s.Status.Conditions, v1alpha1.ConditionStalled)
	if since := s.Status.Applied.Since.Time; stalled.LastTransitionTime.Time.Before(since.Add(5 * time.Second)) {
		t.Errorf("it was applied at %s and given up at %s, and the timeout is 5 s", since, stalled.LastTransitionTime)
	}
	h.Start()
	f.applies("fleet", away)
	h.Has("etc/motd", "three\n")
}

// notWell waits until the Source fleet, and tako why about it, say that a commit which is applied is not well.
func (f *fleet) notWell(commit string, words ...string) v1alpha1.Source {
	f.Helper()
	s := f.because("fleet", "NotWell", append(words, commit[:8])...)
	if s.Status.Applied.ID != commit || !meta.IsStatusConditionTrue(s.Status.Conditions, v1alpha1.ConditionStalled) {
		f.Errorf("applied is %+v, the conditions %+v", s.Status.Applied, s.Status.Conditions)
	}
	said, _ := f.Try("why", "source/fleet", "-n", "ops") // its exit code says that something is wrong
	for _, w := range words {
		if !strings.Contains(said, w) {
			f.Errorf("tako why does not say %q:\n%s", w, said)
		}
	}
	return s
}

// TestDriftIsReported: with Report what others change stays and is told, over a kill of the server too, until a commit changes the object.
func TestDriftIsReported(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	r := newRepository(t, f.repositories, "fleet")
	first := r.commit("first", map[string]string{"a.yaml": text("a", "1"), "b.yaml": text("b", "1")})
	f.allow("fleet", "cluster-admin")
	spec := fmt.Sprintf("{url: %q, drift: Report}", "file://"+r.bare)
	f.look("fleet", spec)
	f.applies("fleet", first)
	path := f.Dir + "/drift.yaml"
	must(t, writeFile(path, text("a", "by hand")))
	f.Tako("apply", "--force-conflicts", "-f", path)
	told := func(when string) {
		t.Helper()
		f.until("fleet", "the change is told "+when, func(s *v1alpha1.Source) bool {
			return len(s.Status.Drifted) == 1 && s.Status.Drifted[0].Kind == "ConfigMap" && s.Status.Drifted[0].Name == "a" && s.Status.Drifted[0].Namespace == "prod"
		})
		f.is("a", "by hand")
		if said, _ := f.Try("why", "source/fleet", "-n", "ops"); !strings.Contains(said, "ConfigMap a") {
			t.Errorf("%s tako why says nothing of it:\n%s", when, said)
		}
	}
	told("at once")
	f.Server.Kill()
	f.Server.Start(t)
	told("after a kill of the server")
	second := r.commit("another object", map[string]string{"b.yaml": text("b", "2")})
	f.look("fleet", spec)
	f.applies("fleet", second)
	f.is("b", "2")
	told("after a commit that is about something else")
	third := r.commit("this object", map[string]string{"a.yaml": text("a", "3")})
	f.look("fleet", spec)
	f.applies("fleet", third)
	f.is("a", "3")
	f.until("fleet", "no drift is left", func(s *v1alpha1.Source) bool { return len(s.Status.Drifted) == 0 })
}

// TestSuspensionEnds: a suspension is there after the server was killed, and ends by itself when it is time, not before.
func TestSuspensionEnds(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	r := newRepository(t, f.repositories, "fleet")
	first := r.commit("first", map[string]string{"a.yaml": text("a", "1")})
	f.allow("fleet", "cluster-admin")
	f.look("fleet", spec(r, "main"))
	f.applies("fleet", first)
	// Until it ends the server is killed and started, which takes a second; what is proven does not depend on how long that takes.
	end := time.Now().Add(15 * time.Second).UTC().Truncate(time.Second)
	f.look("fleet", fmt.Sprintf(`{url: %q, suspend: {reason: "a freeze", owner: ann, until: %q}}`, "file://"+r.bare, end.Format(time.RFC3339)))
	second := r.commit("during the freeze", map[string]string{"a.yaml": text("a", "2")})
	f.Server.Kill()
	f.Server.Start(t)
	s := f.until("fleet", "the suspension is over", func(s *v1alpha1.Source) bool {
		return s.Status.Applied != nil && s.Status.Applied.ID == second && ready(s)
	})
	if since := s.Status.Applied.Since; since.Time.Before(end) {
		t.Errorf("commit %s was applied at %s, and the suspension ends at %s", second, since, end)
	}
	if meta.FindStatusCondition(s.Status.Conditions, "Suspended") != nil {
		t.Errorf("it is said to be suspended: %+v", s.Status.Conditions)
	}
	f.is("a", "2")
}
