package workload

import "tako.dev/tako/declare"

// Kind is the name of the kind.
const Kind = "Workload"

// Declaration is a workload as it stands in a file.
//
// +k8s:deepcopy-gen=false
// +k8s:openapi-gen=false
type Declaration struct {
	APIVersion string           `json:"apiVersion"`
	Kind       string           `json:"kind"`
	Metadata   declare.Metadata `json:"metadata"`
	Spec       Spec             `json:"spec"`
}

// Read reads a text of one document as strictly as NodeConfigs are read, and returns every mistake with its place. The document has the
// places; it is nil where there is none. With a mistake the declaration must not be acted upon.
func Read(file string, data []byte) (*Declaration, *declare.Document, []declare.Fault) {
	d := &Declaration{}
	document, faults := declare.ReadAs(file, data, d)
	if document == nil {
		return d, nil, faults
	}
	return d, document, declare.SortFaults(append(faults, document.Tell(Validate(d.Metadata.Name, d.Metadata.Namespace, &d.Spec))...))
}
