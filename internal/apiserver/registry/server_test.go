package registry

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternal "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"tako.dev/tako/api/v1alpha1"
)

// three are servers of which one does not answer.
func three(_ context.Context, name string) []v1alpha1.Server {
	since := metav1.NewTime(time.Now().Add(-3 * time.Hour))
	all := []v1alpha1.Server{
		{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Status: v1alpha1.ServerStatus{Address: "a:6443", Role: v1alpha1.ServerLeader, Since: &since, Hosts: 7, Fresh: true, Version: "v1", Term: 5, Revision: 9, TransferAddress: "a:6444"}},
		{ObjectMeta: metav1.ObjectMeta{Name: "b"}, Status: v1alpha1.ServerStatus{Address: "b:6443", Role: v1alpha1.ServerFollower, Since: &since}},
		{ObjectMeta: metav1.ObjectMeta{Name: "c"}, Status: v1alpha1.ServerStatus{Address: "c:6443", Role: v1alpha1.ServerUnknown, Message: "no answer"}},
	}
	return slices.DeleteFunc(all, func(s v1alpha1.Server) bool { return name != "" && s.Name != name })
}

func TestServers(t *testing.T) {
	s := NewServerStore(three)
	for name, c := range map[string]struct {
		options *metainternal.ListOptions
		want    []string
	}{
		"all":      {nil, []string{"a", "b", "c"}},
		"a field":  {&metainternal.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", "b")}, []string{"b"}},
		"no label": {&metainternal.ListOptions{LabelSelector: labels.SelectorFromSet(labels.Set{"x": "y"})}, nil},
	} {
		list, err := s.List(t.Context(), c.options)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, server := range list.(*v1alpha1.ServerList).Items {
			got = append(got, server.Name)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %v", name, got)
		}
	}
	if one, err := s.Get(t.Context(), "b", nil); err != nil || one.(*v1alpha1.Server).Status.Address != "b:6443" {
		t.Errorf("%v, %v", one, err)
	}
	if _, err := s.Get(t.Context(), "d", nil); !apierrors.IsNotFound(err) {
		t.Error(err)
	}
}

// TestServersTable: of one that does not answer nothing is shown that is not known.
func TestServersTable(t *testing.T) {
	s := NewServerStore(three)
	list, err := s.List(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	table, err := s.ConvertToTable(t.Context(), list, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{
		"[a a:6443 Leader 3h 7 fresh v1  5 9 a:6444]",
		"[b b:6443 Follower 3h 0 stale   0 0 ]",
		"[c c:6443 Unknown  0   no answer 0 0 ]",
	} {
		if got := fmt.Sprint(table.Rows[i].Cells); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
