package assignments

import (
	"context"
	"fmt"
	"strings"
	"testing"

	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/internal/controllers/layers"
	"tako.dev/tako/internal/fleet/exposed"
)

// secretRig is a rig with a Secret of two keys, qa/app, of which the config web of qa takes the first.
func secretRig(t *testing.T) (r *rig, node *v1alpha1.Node) {
	t.Helper()
	r = newRig(t)
	s := &core.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "qa", Name: "app"}, Data: map[string][]byte{"token": []byte("one"), "other": []byte("1")}}
	r.must(local.Create(r.Context(), s))
	t.Cleanup(func() {
		if err := local.Delete(context.Background(), s, nil); err != nil {
			t.Errorf("clear: %v", err)
		}
	})
	node = r.join("a", "qa")
	r.takes(s)
	r.settles("qa", "web", r.declare("qa", "web", "one", allAtOnce), "Complete")
	if own := r.assignment("a").Spec.Own; own == nil || len(own.Keys) != 1 {
		t.Fatalf("own layer %+v", own)
	}
	return r, node
}

// takes has the config take the value that the Secret has.
func (r *rig) takes(s *core.Secret) {
	const config = "NodeConfig/qa/web"
	r.layers.set(config, func() {
		r.layers.keys[config] = []layers.KeyUse{{ID: r.layers.KeyID(string(s.UID), "token", s.Data["token"]), Secret: "qa/app/token"}}
		r.layers.salt[config] = string(s.Data["token"])
	})
}

// set changes a value.
func (r *rig) set(key, value string) *core.Secret {
	r.Helper()
	s := &core.Secret{}
	r.retry(func() error {
		r.must(local.Get(r.Context(), types.NamespacedName{Namespace: "qa", Name: "app"}, s))
		s.Data[key] = []byte(value)
		return local.Update(r.Context(), s)
	})
	return s
}

// exposes waits until the Secret says so much, or has nothing to say.
func (r *rig) exposes(want string) {
	r.Helper()
	r.eventually("the secret says "+want, func() string {
		s := &core.Secret{}
		r.must(local.Get(r.Context(), types.NamespacedName{Namespace: "qa", Name: "app"}, s))
		var all []string
		for _, e := range exposed.Read(s.Annotations[exposed.Annotation]) {
			all = append(all, fmt.Sprintf("%s %s: %s", e.Node, e.Why, strings.Join(e.Keys, ",")))
		}
		got := strings.Join(all, "; ")
		return unless(got == want, fmt.Sprintf("%q", got))
	})
}

func TestMovedHostExposes(t *testing.T) {
	r, _ := secretRig(t)
	r.agents["a"].deaf = true // it is away
	r.full.Store(true)
	r.change("a", func(s *v1alpha1.NodeSpec) { s.Environment = "prod" })
	late := r.declare("qa", "other", "two", allAtOnce) // whatever else is to do is done
	r.settles("qa", "other", late, "Empty")
	if got := r.assignment("a").Spec.Environment; got != "qa" {
		t.Errorf("it is in %s, and nobody has noted what it could read", got)
	}
	r.full.Store(false)
	r.exposes("a was moved from qa to prod: token")
	r.eventually("it is moved", func() string { return unless(r.assignment("a").Spec.Environment == "prod", "not yet") })
	if !r.recorder.has("app: Exposed") {
		t.Error("nobody is told")
	}
	r.set("other", "2")
	r.exposes("a was moved from qa to prod: token")
	r.set("token", "two")
	r.exposes("")
}

func TestReplacedHostExposes(t *testing.T) {
	r, _ := secretRig(t)
	r.retry(func() error {
		n := &v1alpha1.Node{}
		r.must(local.Get(r.Context(), keyOf("a"), n))
		n.Status.Identity.SealingKey = []byte("another key")
		return local.UpdateStatus(r.Context(), n)
	})
	r.exposes("a was replaced by another host: token")
	// The host that is there now takes what is new, and loses nothing by that.
	r.takes(r.set("token", "two"))
	r.exposes("")
	r.settles("qa", "web", r.declare("qa", "web", "two", allAtOnce), "Complete")
	r.exposes("")
}

// TestDeletedHostExposes: a server that is not there when a node goes, or dies then, finds what the host could read when it is back.
func TestDeletedHostExposes(t *testing.T) {
	r, node := secretRig(t)
	r.stop()
	placed := r.assignment("a")
	r.must(local.Delete(r.Context(), node, nil))
	r.must(local.Delete(r.Context(), placed, nil)) // as garbage collection does
	delete(r.agents, "a")
	if left := r.assignment("a"); left.DeletionTimestamp == nil {
		t.Fatalf("the assignment does not wait: %+v", left)
	}
	r.full.Store(true)
	r.begin()
	again := r.join("a", "prod")
	late := r.declare("qa", "other", "two", allAtOnce)
	r.settles("qa", "other", late, "Empty")
	if left := r.assignment("a"); left.UID != placed.UID {
		t.Fatalf("it has gone, and nobody has noted what the host could read: %+v", left)
	}
	r.full.Store(false)
	r.exposes("a was deleted: token")
	r.eventually("the new node has its own", func() string { return unless(r.assignment("a").Spec.NodeUID == again.UID, "not yet") })
	r.set("token", "two")
	r.exposes("")
}

// TestOldValueIsNotExposed: what a host could read that is not the value any more is nothing to change.
func TestOldValueIsNotExposed(t *testing.T) {
	r, node := secretRig(t)
	r.agents["a"].deaf = true
	r.set("token", "two") // which no layer has yet
	placed := r.assignment("a")
	r.must(local.Delete(r.Context(), node, nil))
	r.must(local.Delete(r.Context(), placed, nil))
	delete(r.agents, "a")
	r.eventually("it goes", func() string { return unless(r.assignment("a").UID == "", "not yet") })
	r.exposes("")
}
