// Package workload is what users declare of tasks that run somewhere in the fleet: what an instance runs, on which nodes, how many, how
// it changes, and what becomes of it when a node is lost. It is to the kind Workload what package declare is to NodeConfig: the one
// definition of every field, its default and its validation, wrapped by the API and acted on by the scheduler and by agents. Names follow
// Kubernetes where the concept is the same.
//
// Nothing is defaulted into what is stored: the methods ending in OrDefault apply a default where the field is read, of what Validate has taken.
//
//	Read      a file -> declaration, places, every mistake
//	Validate  every mistake that can be seen in one workload alone; ValidateUpdate also what cannot be changed
//	Hash      what a revision is called; RevisionHash among those that there are
//	Compare   what a change means for the instances that run: nothing, in place, restart; whether some have to move
//
// +k8s:deepcopy-gen=package
// +k8s:openapi-gen=true
// +k8s:openapi-model-package=dev.tako.declare.workload
package workload
