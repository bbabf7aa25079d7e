package declare

// Taint keeps off a node what does not tolerate it.
//
// +k8s:deepcopy-gen=true
// +k8s:openapi-gen=true
// +k8s:openapi-model-package=dev.tako.declare
type Taint struct {
	// Key has the form of a label's key.
	Key string `json:"key"`
	// Value has the form of a label's value. Default empty.
	Value string `json:"value,omitempty"`
	// Effect is NoSchedule, PreferNoSchedule or NoExecute.
	Effect TaintEffect `json:"effect"`
}

// TaintEffect is what a taint does, with the meaning that Kubernetes gives it.
//
// +enum
type TaintEffect string

// The effects of taints.
const (
	// TaintNoSchedule lets no new instance onto the node.
	TaintNoSchedule TaintEffect = "NoSchedule"
	// TaintPreferNoSchedule lets no new instance onto the node where another one will do.
	TaintPreferNoSchedule TaintEffect = "PreferNoSchedule"
	// TaintNoExecute lets no new instance onto the node, and those that are there leave.
	TaintNoExecute TaintEffect = "NoExecute"
)
