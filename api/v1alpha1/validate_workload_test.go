package v1alpha1

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"tako.dev/tako/declare"
	"tako.dev/tako/declare/workload"
)

const workloadHead = "apiVersion: tako.dev/v1alpha1\nkind: Workload\nmetadata: {name: web, namespace: qa}\n"

// TestValidateWorkloadSaysWhatFilesSay compares what is said of a mistake in a file with what is said of it in the API.
func TestValidateWorkloadSaysWhatFilesSay(t *testing.T) {
	for _, spec := range []string{
		`template: {tasks: [{name: web, command: [/bin/web]}]}`,
		`template: {tasks: []}`,
		`template: {tasks: [{name: Web, command: [web]}, {name: a, command: [/a]}, {name: a, command: [/a]}]}`,
		`mode: PerNode, replicas: 3, template: {tasks: [{name: web, command: [/bin/web]}]}`,
		`mode: Sometimes, template: {tasks: [{name: web, command: [/bin/web], env: [{name: A, value: "$(B)"}]}]}`,
		`replicas: -1, rollout: {maxSurge: 0, maxUnavailable: 0}, template: {tasks: [{name: web, command: [/bin/web], readiness: {tcp: {port: http}}}]}`,
	} {
		declared, _, said := workload.Read("f", []byte(workloadHead+"spec: {"+spec+"}\n"))
		b, err := json.Marshal(declared)
		if err != nil {
			t.Fatal(err)
		}
		obj, _, err := strictDecoder(t).Decode(b, nil, nil)
		w, ok := obj.(*Workload)
		if !ok {
			t.Fatalf("%s: %T, %v", b, obj, err)
		}
		if g, w := words(ValidateWorkload(w, nil)), words(said); !slices.Equal(g, w) {
			t.Errorf("%s:\nthe API says %s\na file      %s", spec, g, w)
		}
		if again, _ := json.Marshal(w.Declaration()); string(again) != string(b) {
			t.Errorf("%s: as a declaration it is %s, want %s", spec, again, b)
		}
	}
}

func goodWorkload(t *testing.T) *Workload {
	t.Helper()
	declared, _, faults := workload.Read("f", []byte(workloadHead+"spec: {replicas: 3, template: {tasks: [{name: web, command: [/bin/web]}]}}\n"))
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	return &Workload{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "qa"}, Spec: declared.Spec}
}

func TestValidateWorkloadUpdate(t *testing.T) {
	old := goodWorkload(t)
	for _, c := range []struct {
		name   string
		change func(*Workload)
		want   string
	}{
		{"nothing", func(*Workload) {}, ""},
		{"more", func(w *Workload) { w.Spec.Replicas = new(int32) }, ""},
		{"the mode that is the default", func(w *Workload) { w.Spec.Mode = workload.Replicated }, ""},
		{"another mode", func(w *Workload) { w.Spec.Mode, w.Spec.Replicas = workload.PerNode, nil }, "TK0415 spec.mode"},
		{"approved", func(w *Workload) { w.Annotations = map[string]string{AnnotationApproved: ApprovalText("web-abc", 2)} }, ""},
		{"approved of a step only", func(w *Workload) { w.Annotations = map[string]string{AnnotationApproved: "/2"} }, "TK0414 metadata.annotations['tako.dev/approved']"},
		{"approved without a step", func(w *Workload) { w.Annotations = map[string]string{AnnotationApproved: "web-abc"} }, "TK0414 metadata.annotations['tako.dev/approved']"},
		{"approved of much", func(w *Workload) { w.Annotations = map[string]string{AnnotationApproved: "web-abc/999"} }, "TK0414 metadata.annotations['tako.dev/approved']"},
	} {
		w := old.DeepCopy()
		c.change(w)
		if got := summary(ValidateWorkload(w, old)); got != c.want {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
	if revision, step, ok := Approval(map[string]string{AnnotationApproved: ApprovalText("web-abc", 2)}); revision != "web-abc" || step != 2 || !ok {
		t.Errorf("approved: %q, %d, %v", revision, step, ok)
	}
	if _, _, ok := Approval(nil); ok {
		t.Error("nothing approves of something")
	}
}

// FuzzApproval: what is read as an approval is written as it was, and nothing that cannot be read is taken.
func FuzzApproval(f *testing.F) {
	for _, text := range []string{"", "web-abc/0", "web-abc/19", "/1", "web-abc/", "web-abc/-1", "web-abc/256", "a/b/1", "web-abc/01"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		annotations := map[string]string{AnnotationApproved: text}
		revision, step, ok := Approval(annotations)
		if again, n, still := Approval(map[string]string{AnnotationApproved: ApprovalText(revision, step)}); ok && (!still || again != revision || n != step) {
			t.Errorf("%q is %q, %d, and written again %q, %d, %v", text, revision, step, again, n, still)
		}
		var v validator
		if v.approval(annotations); (len(v.faults) == 0) != ok {
			t.Errorf("%q: %v, %v", text, ok, v.faults)
		}
	})
}

func TestValidateTemplateRevision(t *testing.T) {
	good := func() *Revision {
		template := goodWorkload(t).Spec.Template
		return &Revision{ObjectMeta: metav1.ObjectMeta{Name: "web-abc", Namespace: "qa", Annotations: map[string]string{AnnotationNumber: "1"}},
			Spec: RevisionSpec{Source: &RevisionSource{Kind: KindWorkload, Name: "web", UID: "1"}, Template: &template}}
	}
	for _, c := range []struct {
		name   string
		change func(*Revision)
		want   string
	}{
		{"good", func(*Revision) {}, ""},
		{"written by hand", func(r *Revision) { r.Spec.Source = nil }, ""},
		{"of a job", func(r *Revision) { r.Spec.Template.Restart.Policy = workload.RestartNever }, ""},
		{"of a config", func(r *Revision) { r.Spec.Source.Kind = KindNodeConfig }, "TK0414 spec.source.kind"},
		{"of nobody", func(r *Revision) { r.Spec.Source.UID = "" }, "TK0413 spec.source.uid"},
		{"no template", func(r *Revision) { r.Spec.Template = nil }, "TK0413 spec.template"},
		{"resources too", func(r *Revision) { r.Spec.Resources = []declare.Resource{} }, "TK0415 spec.resources"},
		{"a bundle too", func(r *Revision) { r.Spec.Bundle = &declare.BundleReference{} }, "TK0415 spec.bundle"},
		{"a mistake", func(r *Revision) { r.Spec.Template.Tasks = nil }, "TK0413 spec.template.tasks"},
		{"no number", func(r *Revision) { r.Annotations = nil }, "TK0413 metadata.annotations['tako.dev/revision']"},
		{"number 0", func(r *Revision) { r.Annotations[AnnotationNumber] = "0" }, "TK0414 metadata.annotations['tako.dev/revision']"},
		{"number 01", func(r *Revision) { r.Annotations[AnnotationNumber] = "01" }, "TK0414 metadata.annotations['tako.dev/revision']"},
		{"no number at all", func(r *Revision) { r.Annotations[AnnotationNumber] = "one" }, "TK0414 metadata.annotations['tako.dev/revision']"},
	} {
		r := good()
		c.change(r)
		if got := summary(ValidateRevision(r)); got != c.want {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
	old, changed := good(), good()
	old.Annotations[AnnotationNumber], changed.Annotations[AnnotationNumber] = "9", "10"
	if got := summary(ValidateRevisionUpdate(changed, old)); got != "" {
		t.Errorf("number 10 after 9: %s", got)
	}
	if got := summary(ValidateRevisionUpdate(old, changed)); got != "TK0414 metadata.annotations['tako.dev/revision']" {
		t.Errorf("number 9 after 10: %s", got)
	}
	changed.Spec.Template.Tasks[0].Command = []string{"/bin/other"}
	if got := ValidateRevisionUpdate(changed, old); summary(got) != "TK0415 spec" || !strings.Contains(got[0].Hint, KindWorkload) {
		t.Errorf("another template: %v", got)
	}
	cluster := &ClusterRevision{ObjectMeta: metav1.ObjectMeta{Name: "web-abc"}, Spec: RevisionSpec{Resources: []declare.Resource{}, Template: old.Spec.Template}}
	if got := summary(ValidateClusterRevision(cluster)); got != "TK0415 spec.template" {
		t.Errorf("a template of no namespace: %s", got)
	}
}

func TestValidateInstance(t *testing.T) {
	yes := true
	good := func() *Instance {
		return &Instance{
			ObjectMeta: metav1.ObjectMeta{Name: "web-3", Namespace: "qa", Labels: map[string]string{LabelWorkload: "web"},
				OwnerReferences: []metav1.OwnerReference{{APIVersion: declare.APIVersion, Kind: KindWorkload, Name: "web", UID: "1", Controller: &yes}}},
			Spec: InstanceSpec{Workload: "web", Revision: "web-abc", Slot: 3, Node: "n1", NodeUID: "u1"},
		}
	}
	stop := &InstanceStop{Code: "TK0902"}
	for _, c := range []struct {
		name   string
		change func(*Instance)
		want   string // of a new one
		update string // of a change
	}{
		{"good", func(*Instance) {}, "", ""},
		{"another name", func(i *Instance) { i.Name = "web-4" }, "TK0414 metadata.name", "TK0414 metadata.name"},
		{"no label", func(i *Instance) { i.Labels = nil }, "TK0414 metadata.labels['tako.dev/workload']", "TK0414 metadata.labels['tako.dev/workload']"},
		{"no owner", func(i *Instance) { i.OwnerReferences = nil }, "TK0414 metadata.ownerReferences", "TK0414 metadata.ownerReferences"},
		{"another owner", func(i *Instance) { i.OwnerReferences[0].Name = "other" }, "TK0414 metadata.ownerReferences", "TK0414 metadata.ownerReferences"},
		{"no node", func(i *Instance) { i.Spec.Node, i.Spec.NodeUID = "", "" }, "TK0413 spec.node, TK0413 spec.nodeUID", "TK0413 spec.node, TK0413 spec.nodeUID, TK0415 spec"},
		{"another node", func(i *Instance) { i.Spec.Node = "n2" }, "", "TK0415 spec"},
		{"no name of a node", func(i *Instance) { i.Spec.Node = "N 2" }, "TK0414 spec.node", "TK0414 spec.node, TK0415 spec"},
		{"a long UID", func(i *Instance) {
			i.Spec.Replaces = "x"
			i.Spec.NodeUID = "0123456789012345678901234567890123456789012345678901234567890123456789"
		}, "TK0414 spec.nodeUID", "TK0414 spec.nodeUID, TK0415 spec"},
		{"a slot below none", func(i *Instance) { i.Spec.Slot, i.Name = -1, "web--1" }, "TK0414 spec.slot", "TK0414 spec.slot, TK0415 spec"},
		{"told to end", func(i *Instance) { i.Spec.Stop = stop }, "", ""},
		{"told to end for no reason", func(i *Instance) { i.Spec.Stop = &InstanceStop{} }, "TK0414 spec.stop.code", "TK0414 spec.stop.code"},
		{"another revision", func(i *Instance) { i.Spec.Revision = "web-def" }, "", ""},
	} {
		i := good()
		c.change(i)
		if got := summary(ValidateInstance(i, nil)); got != c.want {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
		if got := summary(ValidateInstance(i, good())); got != c.update {
			t.Errorf("%s, changed: got %q, want %q", c.name, got, c.update)
		}
	}
	old := good()
	old.Spec.Stop = stop
	if got := summary(ValidateInstance(good(), old)); got != "TK0415 spec.stop" {
		t.Errorf("taken back: %s", got)
	}
	const bytesMax = 400 // of what is stored of one; architecture.md, Kinds
	i := old
	i.OwnerReferences[0].UID, i.Spec.NodeUID = "01234567-0123-0123-0123-012345678901", "01234567-0123-0123-0123-012345678901"
	if spec, _ := json.Marshal(i.Spec); len(spec) > bytesMax {
		t.Errorf("its spec has %d bytes", len(spec))
	}
}
