package controllers_test

import (
	"fmt"
	"strings"
	"testing"

	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func TestNamespaceIsEmptiedAndGoes(t *testing.T) {
	r := newRig(t)
	name := r.newNamespace()
	for i := range 20 {
		r.configMap(name, fmt.Sprint("map-", i))
	}
	secret := &core.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "secret"}}
	r.must(r.Create(r.Context(), secret))
	r.must(r.Create(r.Context(), nodeConfig(name, "config", "hello")))
	held := r.configMap(name, "held")
	r.must(r.Patch(r.Context(), held, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":["example.com/busy"]}}`))))

	ns := &core.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	r.must(r.Delete(r.Context(), ns))
	r.eventually("it is said what holds the namespace", func() string {
		var got core.Namespace
		r.must(r.Get(r.Context(), client.ObjectKeyFromObject(ns), &got))
		words := ""
		for _, c := range got.Status.Conditions {
			if c.Status == core.ConditionTrue {
				words += c.Message + "; "
			}
		}
		if strings.Contains(words, "configmaps: 1") && strings.Contains(words, "example.com/busy on 1") {
			return ""
		}
		return fmt.Sprintf("%s %+v", words, got.Status)
	})
	r.must(r.Patch(r.Context(), held, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))))
	r.gone(ns)
	r.gone(secret)
	r.counted("tako_controller_namespaces_removed_total")
}
