package plan

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"tako.dev/tako/internal/cli/remote"
)

const rbacGroup = "rbac.authorization.k8s.io"

// roleIn is the role that a binding gives, if the same run brings it, and how the server warns of one that is not there: while nothing is
// applied yet, that is no mistake. The warning is empty for everything else.
func (c *Change) roleIn(ctx context.Context, server *remote.Server, b batch) (role remote.Ref, warning string, err error) {
	kind, _, _ := unstructured.NestedString(c.document.Object.Object, "roleRef", "kind")
	name, _, _ := unstructured.NestedString(c.document.Object.Object, "roleRef", "name")
	if c.Ref.Kind.Group != rbacGroup || kind != "Role" && kind != "ClusterRole" {
		return role, "", nil
	}
	role = remote.Ref{Name: name}
	if kind == "Role" {
		role.Namespace = c.Ref.Namespace
	}
	role.Kind, err = server.KindOf(ctx, schema.GroupVersionKind{Group: rbacGroup, Version: c.Ref.Kind.Version, Kind: kind})
	if err != nil || !b.roles[role.Long()] {
		return role, "", err
	}
	return role, fmt.Sprintf("there is no %s %q", kind, name), nil
}
