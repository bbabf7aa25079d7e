package registry

import (
	"errors"
	"fmt"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

var errStillFull = errors.New("what is in the namespace is being deleted; then the namespace goes too")

func errOther(ns *core.Namespace, want types.UID) error {
	return fmt.Errorf("the namespace that is there has uid %s, not %s", ns.UID, want)
}
