package running

import (
	"context"
	"encoding/json"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/bench/load"
	"tako.dev/tako/bench/swarm"
	"tako.dev/tako/declare"
	"tako.dev/tako/declare/workload"
)

// Bench is what rows work with, and where they tell.
type Bench struct {
	// Judge adds a line that has a bar, and State one that has none.
	Judge func(what, measured, bar string, met bool)
	State func(what, measured string)
	// Crowd starts a server, with further flags, and so many simulated hosts of it, hands both over when all is quiet, and ends them.
	Crowd func(ctx context.Context, hosts int, do func(*load.Server, *swarm.Process) error, flags ...string) error
	// Fleet starts a server with one real agent; the caller stops it. Dir is a directory on a disk for what the agent's instances write.
	Fleet func(ctx context.Context) (f *load.Fleet, dir string, err error)
	// Quick measures less.
	Quick bool
}

const (
	// placedMax is how long all instances of a row may take. It is far above every bar: a row that misses one is to say by how much.
	placedMax = 15 * time.Minute
	// lookPause is between two looks at how far it is: fine against a second, and no load.
	lookPause = 100 * time.Millisecond
	// lookShare is how many times as long as a look is between it and the next one: the store goes through all instances to count them.
	lookShare = 10
)

// asking is a task of simulated instances that asks for so much.
func asking(cpu, memory declare.Quantity) workload.Task {
	return workload.Task{
		Name: "task", Command: []string{"/usr/bin/sleep", "infinity"},
		Resources: workload.Resources{Requests: workload.Amounts{CPU: cpu, Memory: memory}},
	}
}

// declaration is a workload of the default namespace.
func declaration(name string, replicas int, task workload.Task) ([]byte, error) {
	n := int32(replicas)
	return json.Marshal(&v1alpha1.Workload{
		TypeMeta: metav1.TypeMeta{APIVersion: declare.APIVersion, Kind: v1alpha1.KindWorkload}, ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"},
		Spec: workload.Spec{Replicas: &n, Template: workload.Template{Runtime: workload.Process, Tasks: []workload.Task{task}}},
	})
}
