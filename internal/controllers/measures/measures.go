package measures

import (
	"k8s.io/apimachinery/pkg/types"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/fleet/rollout/pace"
	"tako.dev/tako/internal/fleet/scale"
)

// Measures is all that is measured. Use New. It is safe for concurrent use.
type Measures struct {
	Usage
	*Prometheus
	workloads *Asker
}

// New makes one that asks the Prometheus servers of these names; see NewPrometheus.
func New(servers map[string]string, objects Objects) (*Measures, error) {
	p, err := NewPrometheus(servers, objects)
	if err != nil {
		return nil, err
	}
	return &Measures{Prometheus: p, workloads: p.Asker()}, nil
}

// Want says what is to be measured for workloads from now on: the instances on nodes, and queries. The maps are the callee's from then on.
func (m *Measures) Want(nodes map[types.UID]bool, queries map[Query]bool) {
	m.Usage.Want(nodes)
	m.workloads.Want(queries)
}

// Answers has the newest answer to queries. *Prometheus is one.
type Answers interface {
	// Answer is the newest to a query; empty until one that is wanted was asked.
	Answer(q Query) scale.Answer
}

// Readings are what was measured last for the gates of an object in a namespace, by their names. nil are the answers of a server that measures nothing.
func Readings(from Answers, namespace string, gates []declare.Gate) map[string]pace.Reading {
	if len(gates) == 0 {
		return nil
	}
	all := map[string]pace.Reading{}
	for i := range gates {
		r := pace.Reading{Missing: "this server measures nothing: start it with --prometheus NAME=URL"}
		if from != nil {
			a := from.Answer(QueryOf(namespace, &gates[i].Prometheus))
			r = pace.Reading{At: a.At, Value: a.Value, Missing: a.Missing}
		}
		all[gates[i].Name] = r
	}
	return all
}
