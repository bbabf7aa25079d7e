package wire

import (
	"cmp"
	"slices"

	"tako.dev/tako/internal/catalog"
)

// instanceBytes and portBytes are above what an instance and a port take beside their texts.
const (
	instanceBytes = 64
	portBytes     = 8
)

// size is how much of InstancesBytesMax an instance takes.
func (i *Instance) size() int {
	n := instanceBytes + len(i.UID) + len(i.Message) + len(i.Revision)
	for _, p := range i.Ports {
		n += portBytes + len(p.Name)
	}
	return n
}

// FitInstances puts instances in order, and cuts what is said of them to what a report may have: each text, and where all together is too much, first
// the texts and then the ports of the last ones. The result is the argument's, changed.
func FitInstances(all []Instance) []Instance {
	slices.SortFunc(all, func(a, b Instance) int { return cmp.Compare(a.UID, b.UID) })
	all = all[:min(len(all), catalog.InstancesMax)]
	bytes := 0
	for i := range all {
		all[i].Message = cut(all[i].Message, InstanceMessageMax)
		bytes += all[i].size()
	}
	for _, drop := range []func(*Instance){
		func(in *Instance) { in.Message = "" },
		func(in *Instance) { in.Ports = nil },
	} {
		for i := len(all) - 1; i >= 0 && bytes > InstancesBytesMax; i-- {
			before := all[i].size()
			drop(&all[i])
			bytes -= before - all[i].size()
		}
	}
	return all
}
