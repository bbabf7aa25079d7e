package admission

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/admission"
)

// Definitions keeps the groups of the server's own kinds for those: with the definition of a kind its objects go, and they stand
// under the name of group and kind, whoever serves them.
type Definitions struct {
	*admission.Handler
	groups map[string]bool
}

var _ admission.ValidationInterface = (*Definitions)(nil)

// NewDefinitions makes the plugin. groups are those of the server's own kinds.
func NewDefinitions(groups ...string) *Definitions {
	d := &Definitions{Handler: admission.NewHandler(admission.Create), groups: map[string]bool{apiextensions.GroupName: true}}
	for _, g := range groups {
		d.groups[g] = true
	}
	return d
}

// Validate refuses new definitions in the server's groups. The group of one that is there never changes.
func (d *Definitions) Validate(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetKind().GroupKind() != apiextensions.Kind("CustomResourceDefinition") {
		return nil
	}
	// The library refuses a name that is not RESOURCE.GROUP; so nothing is missed by looking at both.
	_, group, _ := strings.Cut(a.GetName(), ".")
	named := []string{group}
	if crd, is := a.GetObject().(*apiextensions.CustomResourceDefinition); is {
		named = append(named, crd.Spec.Group)
	}
	for _, g := range named {
		if d.groups[g] {
			return apierrors.NewForbidden(a.GetResource().GroupResource(), a.GetName(),
				fmt.Errorf("the kinds of group %s are defined by tako itself: choose a group of your own, such as one that ends with a domain name of yours", g))
		}
	}
	return nil
}
