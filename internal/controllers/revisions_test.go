package controllers_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/declare"
	"tako.dev/tako/internal/catalog"
)

// nodeConfig has two resources, one of them a file with that content.
func nodeConfig(namespace, name, content string) *v1alpha1.NodeConfig {
	return &v1alpha1.NodeConfig{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: declare.NodeConfigSpec{Resources: []declare.Resource{
			{Name: "motd", File: &declare.File{Path: "/etc/motd", Content: content}, Require: []string{"etc"}},
			{Name: "etc", Directory: &declare.Directory{Path: "/etc"}},
		}},
	}
}

func nameOf(t *testing.T, config *v1alpha1.NodeConfig) string {
	t.Helper()
	digest, err := catalog.RevisionDigest(config.Spec.Resources)
	if err != nil {
		t.Fatal(err)
	}
	return catalog.RevisionName(config.Name, digest)
}

// made waits until a config's status is about its generation and Ready, and returns the config.
func (r *rig) made(config *v1alpha1.NodeConfig) *v1alpha1.NodeConfig {
	r.Helper()
	got := &v1alpha1.NodeConfig{}
	r.eventually("the revision of "+config.Name+" is made", func() string {
		r.must(r.Get(r.Context(), client.ObjectKeyFromObject(config), got))
		if got.Status.ObservedGeneration == got.Generation && meta.IsStatusConditionTrue(got.Status.Conditions, v1alpha1.ConditionReady) {
			return ""
		}
		return fmt.Sprintf("generation %d, status %+v", got.Generation, got.Status)
	})
	return got
}

// change changes what a config declares, also while its status is written.
func (r *rig) change(config *v1alpha1.NodeConfig, change func()) {
	r.Helper()
	r.must(retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		if err := r.Get(r.Context(), client.ObjectKeyFromObject(config), config); err != nil {
			return err
		}
		change()
		return r.Update(r.Context(), config)
	}))
}

func (r *rig) revisionsOf(config *v1alpha1.NodeConfig) []string {
	r.Helper()
	var list v1alpha1.RevisionList
	r.must(r.List(r.Context(), &list, client.InNamespace(config.Namespace), client.MatchingLabels{v1alpha1.LabelConfigUID: string(config.UID)}))
	names := []string{}
	for _, item := range list.Items {
		names = append(names, item.Name)
	}
	slices.Sort(names)
	return names
}

func TestRevisionIsMadeOfWhatIsDeclared(t *testing.T) {
	r := newRig(t)
	config := nodeConfig(r.namespace, "web", "hello")
	name := nameOf(t, config)
	r.must(r.Create(r.Context(), config))
	config = r.made(config)
	if config.Status.Revision != name {
		t.Fatalf("revision %s, want %s", config.Status.Revision, name)
	}
	var revision v1alpha1.Revision
	r.must(r.Get(r.Context(), client.ObjectKey{Namespace: r.namespace, Name: name}, &revision))
	by := metav1.GetControllerOf(&revision)
	if by == nil || by.UID != config.UID || by.Kind != "NodeConfig" || by.BlockOwnerDeletion == nil || !*by.BlockOwnerDeletion {
		t.Errorf("controlled by %+v", by)
	}
	if source := revision.Spec.Source; source == nil || source.UID != config.UID || len(revision.Spec.Resources) != 2 || revision.Spec.Resources[0].File.Content != "hello" {
		t.Errorf("holds %+v", revision.Spec)
	}
	// Another order and another priority are a new generation, and no new revision.
	r.change(config, func() {
		slices.Reverse(config.Spec.Resources)
		priority := 7
		config.Spec.Priority = &priority
	})
	config = r.made(config)
	if config.Generation != 2 || config.Status.Revision != name || len(r.revisionsOf(config)) != 1 {
		t.Errorf("generation %d: %s of %v", config.Generation, config.Status.Revision, r.revisionsOf(config))
	}
	// One that was deleted by mistake comes back.
	r.must(r.Delete(r.Context(), &revision))
	r.eventually("it comes back", func() string {
		var again v1alpha1.Revision
		if err := r.Get(r.Context(), client.ObjectKeyFromObject(&revision), &again); err != nil {
			return err.Error()
		}
		if again.UID == revision.UID {
			return "it was not gone"
		}
		return ""
	})
	r.must(r.Delete(r.Context(), config))
	r.gone(&revision)
}

func TestOldRevisionsAreRemoved(t *testing.T) {
	r := newRig(t)
	config := nodeConfig(r.namespace, "web", "0")
	first := nameOf(t, config)
	r.must(r.Create(r.Context(), config))
	for i := 1; i < 14; i++ {
		config = r.made(config)
		r.change(config, func() { config.Spec.Resources[0].File.Content = fmt.Sprint(i) })
	}
	config = r.made(config)
	r.eventually("ten old ones are kept", func() string {
		got := r.revisionsOf(config)
		if len(got) == 11 && slices.Contains(got, config.Status.Revision) {
			return ""
		}
		return fmt.Sprint(got)
	})
	// What is declared as it was first has the old name again, though that revision is gone.
	r.change(config, func() { config.Spec.Resources[0].File.Content = "0" })
	if got := r.made(config).Status.Revision; got != first {
		t.Errorf("revision %s, want %s", got, first)
	}
}

// Who changes a config without a pause does not send every host after each change: there are fewer revisions by far, and one of the last.
func TestStormOfChanges(t *testing.T) {
	const changes = 100
	r := newRig(t)
	config := nodeConfig(r.namespace, "web", "0")
	r.must(r.Create(r.Context(), config))
	config = r.made(config)
	made, began := map[string]bool{}, time.Now()
	for i := range changes {
		was := config.DeepCopy()
		config.Spec.Resources[0].File.Content = fmt.Sprint("change ", i)
		r.must(r.Patch(r.Context(), config, client.MergeFrom(was)))
		made[config.Status.Revision] = true
	}
	config = r.made(config)
	if got, want := config.Status.Revision, nameOf(t, config); got != want {
		t.Errorf("the last revision is %s, and not %s", got, want)
	}
	// On a machine that is busy it is no storm: whoever makes fewer than ten in a second gets a revision for each.
	if took := time.Since(began); len(made) > max(changes/5, int(took/(100*time.Millisecond))+2) {
		t.Errorf("%d changes in %s made %d revisions", changes, took, len(made))
	}
	t.Logf("%d changes made %d revisions", changes, len(made))
}

func TestRevisionOfAnotherIsNotTouched(t *testing.T) {
	r := newRig(t)
	config := nodeConfig(r.namespace, "web", "hello")
	foreign := &v1alpha1.Revision{ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace, Name: nameOf(t, config)},
		Spec: v1alpha1.RevisionSpec{Resources: []declare.Resource{{Name: "a", File: &declare.File{Path: "/a"}}}}}
	r.must(r.Create(r.Context(), foreign))
	r.must(r.Create(r.Context(), config))
	r.eventually("the config is stalled", func() string {
		var got v1alpha1.NodeConfig
		r.must(r.Get(r.Context(), client.ObjectKeyFromObject(config), &got))
		c := meta.FindStatusCondition(got.Status.Conditions, v1alpha1.ConditionStalled)
		if c != nil && c.Reason == "RevisionConflict" && strings.Contains(c.Message, foreign.Name) && got.Status.Revision == "" {
			return ""
		}
		return fmt.Sprintf("%+v", got.Status)
	})
	var got v1alpha1.Revision
	r.must(r.Get(r.Context(), client.ObjectKeyFromObject(foreign), &got))
	if got.ResourceVersion != foreign.ResourceVersion {
		t.Errorf("the revision of another was changed: %+v", got)
	}
	r.must(r.Delete(r.Context(), foreign))
	made := r.made(config)
	if meta.FindStatusCondition(made.Status.Conditions, v1alpha1.ConditionStalled) != nil {
		t.Errorf("it is still stalled: %+v", made.Status.Conditions)
	}
}

// A config that is deleted and made anew gets a revision of its own under the same name, once the old one is collected.
func TestRevisionOfAConfigMadeAnew(t *testing.T) {
	r := newRig(t)
	first := nodeConfig(r.namespace, "web", "hello")
	r.must(r.Create(r.Context(), first))
	name := r.made(first).Status.Revision
	r.must(r.Delete(r.Context(), first))
	again := nodeConfig(r.namespace, "web", "hello")
	r.must(r.Create(r.Context(), again))
	r.made(again)
	r.eventually("the revision belongs to the new config", func() string {
		var revision v1alpha1.Revision
		if err := r.Get(r.Context(), client.ObjectKey{Namespace: r.namespace, Name: name}, &revision); err != nil {
			return err.Error()
		}
		if by := metav1.GetControllerOf(&revision); by == nil || by.UID != again.UID {
			return fmt.Sprintf("controlled by %+v", by)
		}
		return ""
	})
}

func TestClusterRevision(t *testing.T) {
	r := newRig(t)
	config := &v1alpha1.ClusterNodeConfig{ObjectMeta: metav1.ObjectMeta{GenerateName: "all-"}, Spec: nodeConfig("", "", "hello").Spec}
	r.must(r.Create(r.Context(), config))
	var revision v1alpha1.ClusterRevision
	r.eventually("the cluster revision is made", func() string {
		var got v1alpha1.ClusterNodeConfig
		r.must(r.Get(r.Context(), client.ObjectKeyFromObject(config), &got))
		if got.Status.Revision == "" {
			return "the status names none"
		}
		r.must(r.Get(r.Context(), client.ObjectKey{Name: got.Status.Revision}, &revision))
		return ""
	})
	r.must(r.Delete(r.Context(), config, client.PropagationPolicy(metav1.DeletePropagationForeground)))
	r.gone(&revision)
	r.gone(config)
}
