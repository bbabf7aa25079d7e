package registry

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternal "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"

	"tako.dev/tako/api/v1alpha1"
)

// ReadServers is how servers stand now: all, or the one of a name; none where there is no such one. It bounds by itself how long it waits for another
// server, and the objects belong to who asks.
type ReadServers func(ctx context.Context, name string) []v1alpha1.Server

// ServerStore serves Servers, of which nothing is stored. Use NewServerStore.
type ServerStore struct {
	table
	read ReadServers
}

var (
	_ rest.Scoper               = (*ServerStore)(nil)
	_ rest.SingularNameProvider = (*ServerStore)(nil)
	_ rest.CategoriesProvider   = (*ServerStore)(nil)
	_ rest.Getter               = (*ServerStore)(nil)
	_ rest.Lister               = (*ServerStore)(nil)
)

// NewServerStore serves what read says.
func NewServerStore(read ReadServers) *ServerStore {
	return &ServerStore{table{serverColumns(func(o runtime.Object) *v1alpha1.ServerStatus { return &o.(*v1alpha1.Server).Status })}, read}
}

func serverColumns(of func(runtime.Object) *v1alpha1.ServerStatus) []Column {
	return []Column{
		{Name: "Name", Type: "string", Format: "name", Description: "ID of the server", Value: func(o runtime.Object) any { return metadata(o).GetName() }},
		{Name: "Address", Type: "string", Description: "where people and programs reach it", Value: func(o runtime.Object) any { return of(o).Address }},
		{Name: "Role", Type: "string", Description: "whether it leads", Value: func(o runtime.Object) any { return string(of(o).Role) }},
		{Name: "Since", Type: "string", Description: "for how long it has that role", Value: func(o runtime.Object) any {
			if t := of(o).Since; t != nil {
				return since(*t)
			}
			return ""
		}},
		{Name: "Hosts", Type: "integer", Description: "hosts that are connected to it", Value: func(o runtime.Object) any { return of(o).Hosts }},
		{Name: "View", Type: "string", Description: "whether what it signs for hosts is proven to be new", Value: func(o runtime.Object) any { return viewText(of(o)) }},
		{Name: "Version", Type: "string", Description: "of its program", Value: func(o runtime.Object) any { return of(o).Version }},
		{Name: "Message", Type: "string", Description: "why nothing else is known", Value: func(o runtime.Object) any { return of(o).Message }},
		{Name: "Term", Type: "integer", Wide: true, Description: "of the leader, as this server knows it", Value: func(o runtime.Object) any { return of(o).Term }},
		{Name: "Revision", Type: "integer", Wide: true, Description: "of the newest change in etcd that it knows", Value: func(o runtime.Object) any { return int64(of(o).Revision) }},
		{Name: "Transfer", Type: "string", Wide: true, Description: "where hosts reach it", Value: func(o runtime.Object) any { return of(o).TransferAddress }},
	}
}

// viewText says how good the view of a server is, as far as that is known.
func viewText(s *v1alpha1.ServerStatus) string {
	switch {
	case s.Role == v1alpha1.ServerUnknown:
		return ""
	case s.Fresh:
		return "fresh"
	}
	return "stale"
}

// New makes an empty Server.
func (*ServerStore) New() runtime.Object { return &v1alpha1.Server{} }

// NewList makes an empty list.
func (*ServerStore) NewList() runtime.Object { return &v1alpha1.ServerList{} }

// Destroy does nothing: nothing is kept.
func (*ServerStore) Destroy() {}

// NamespaceScoped says that servers are in no namespace.
func (*ServerStore) NamespaceScoped() bool { return false }

// GetSingularName is what one is called.
func (*ServerStore) GetSingularName() string { return "server" }

// Categories are the names of several kinds that these are among.
func (*ServerStore) Categories() []string { return []string{category} }

// Get says how one server stands.
func (s *ServerStore) Get(ctx context.Context, name string, _ *metav1.GetOptions) (runtime.Object, error) {
	if all := s.read(ctx, name); len(all) == 1 {
		return &all[0], nil
	}
	return nil, apierrors.NewNotFound(v1alpha1.Resource(v1alpha1.ResourceServers), name)
}

// List says how all servers stand that are selected.
func (s *ServerStore) List(ctx context.Context, options *metainternal.ListOptions) (runtime.Object, error) {
	byLabels, byFields := labels.Everything(), fields.Everything()
	if options != nil && options.LabelSelector != nil {
		byLabels = options.LabelSelector
	}
	if options != nil && options.FieldSelector != nil {
		byFields = options.FieldSelector
	}
	list := &v1alpha1.ServerList{Items: []v1alpha1.Server{}}
	for _, server := range s.read(ctx, "") {
		if byLabels.Matches(labels.Set(server.Labels)) && byFields.Matches(fields.Set{"metadata.name": server.Name}) {
			list.Items = append(list.Items, server)
		}
	}
	return list, nil
}
