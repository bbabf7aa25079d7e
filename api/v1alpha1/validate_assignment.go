package v1alpha1

import (
	"fmt"
	"strings"
	"time"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/reason"
)

const (
	// AssignedLayersMax is how many layers of configs a node may have: as many as the catalog of a host takes.
	AssignedLayersMax = 256
	// AssignedTemplatesMax is how many layers of workloads' revisions, as there.
	AssignedTemplatesMax = 256
	// AssignedInstancesMax is how many instances, as there.
	AssignedInstancesMax = 1024
	// templatePrefix begins what the layer of a workload's revision has in the place of its config.
	templatePrefix = KindRevision + "/"
	peersMax       = 64 // what hosts read of their own layer
	digestDigits   = 64 // hexadecimal digits of a SHA-256
	keyIDDigits    = 32 // of a data key's ID, 16 bytes
)

// ValidateAssignment returns every mistake of an assignment that can be seen in it alone. Nobody but tako writes one: a mistake is
// tako's, and is refused before a host gets it.
func ValidateAssignment(a *Assignment) []declare.Fault {
	var v validator
	s := &a.Spec
	v.given("spec", "nodeUID", string(s.NodeUID))
	v.environment("spec.environment", s.Environment)
	v.assignedLayers("spec.layers", s.Layers)
	if s.Own != nil {
		v.own("spec.own", s.Own)
	}
	if s.AllowDeletions < 0 || s.AllowDeletions > 100 {
		v.invalid("spec.allowDeletions", fmt.Sprintf("%d is no percentage", s.AllowDeletions), "0 to 100")
	}
	if most := int32(declare.FetchWindowMax / time.Second); s.FetchWindowSeconds < 0 || s.FetchWindowSeconds > most {
		v.invalid("spec.fetchWindowSeconds", fmt.Sprintf("%d seconds are none to fetch in", s.FetchWindowSeconds), fmt.Sprintf("0 to %d", most))
	}
	v.absorbed("spec.absorbed", s.Absorbed)
	if t := s.Try; t != nil {
		if t.Seconds < 1 {
			v.invalid("spec.try.seconds", fmt.Sprintf("%d seconds is no time to wait", t.Seconds), "")
		}
		v.given("spec.try", "config", t.Config)
		v.digits("spec.try.fallback", t.Fallback, digestDigits)
		v.assignedLayers("spec.try.layers", t.Layers)
		if t.OwnRoot != "" {
			v.digits("spec.try.ownRoot", t.OwnRoot, digestDigits)
		}
	}
	return v.faults
}

// assignedLayers wants them as a host gets them: the highest priority first, equal ones by their configs, each config once.
func (v *validator) assignedLayers(path string, layers []AssignedLayer) {
	templates := 0
	for _, l := range layers {
		if strings.HasPrefix(l.Config, templatePrefix) {
			templates++
		}
	}
	if configs := len(layers) - templates; configs > AssignedLayersMax || templates > AssignedTemplatesMax {
		v.invalid(path, fmt.Sprintf("there are %d layers of configs and %d of workloads, at most %d and %d are allowed", configs, templates, AssignedLayersMax, AssignedTemplatesMax), "")
		return
	}
	first := make(map[string]int, len(layers))
	for i, l := range layers {
		at := fmt.Sprintf("%s[%d]", path, i)
		v.given(at, "config", l.Config)
		v.given(at, "revision", l.Revision)
		v.digits(at+".root", l.Root, digestDigits)
		if j, twice := first[l.Config]; twice {
			v.fault(at+".config", reason.DuplicateName, fmt.Sprintf("config %q is there already", clip(l.Config)), "")
			v.faults[len(v.faults)-1].Related = []declare.Place{{Path: fmt.Sprintf("%s[%d].config", path, j), Note: "first given here"}}
		}
		first[l.Config] = i
		if i > 0 && (layers[i-1].Priority < l.Priority || layers[i-1].Priority == l.Priority && layers[i-1].Config > l.Config) {
			v.invalid(at, "the layers are not in order", "the highest priority first, equal ones by their configs")
		}
	}
}

// absorbed wants at most one for a layer, by their configs.
func (v *validator) absorbed(path string, orders []AbsorbedOrder) {
	if len(orders) > AssignedLayersMax {
		v.invalid(path, fmt.Sprintf("there are %d orders, at most %d are allowed", len(orders), AssignedLayersMax), "")
		return
	}
	for i, o := range orders {
		at := fmt.Sprintf("%s[%d]", path, i)
		v.given(at, "config", o.Config)
		if o.Epoch < 1 || o.Number < 1 {
			v.invalid(at, fmt.Sprintf("order %d of epoch %d is none", o.Number, o.Epoch), "both begin with 1")
		}
		if i > 0 && orders[i-1].Config >= o.Config {
			v.invalid(at, "the orders are not in order", "by their configs, each once")
		}
	}
}

func (v *validator) own(path string, o *OwnLayer) {
	v.digits(path+".root", o.Root, digestDigits)
	for i, k := range o.Keys {
		at := fmt.Sprintf("%s.keys[%d]", path, i)
		v.digits(at+".id", k.ID, keyIDDigits)
		v.given(at, "sealed", string(k.Sealed))
	}
	for i := range o.Holds {
		v.hold(fmt.Sprintf("%s.holds[%d]", path, i), &o.Holds[i])
	}
	if len(o.Peers) > peersMax {
		v.invalid(path+".peers", fmt.Sprintf("%d peers are too many", len(o.Peers)), fmt.Sprintf("at most %d", peersMax))
	}
	for i, p := range o.Peers {
		at := fmt.Sprintf("%s.peers[%d]", path, i)
		v.given(at, "name", p.Name)
		v.given(at, "uid", string(p.UID))
		v.given(at, "address", p.Address)
	}
	v.instances(path+".instances", o.Instances)
}

// instances wants them by their UIDs, each once.
func (v *validator) instances(path string, all []AssignedInstance) {
	if len(all) > AssignedInstancesMax {
		v.invalid(path, fmt.Sprintf("there are %d instances, at most %d are allowed", len(all), AssignedInstancesMax), "")
		return
	}
	for i := range all {
		in, at := &all[i], fmt.Sprintf("%s[%d]", path, i)
		v.given(at, "uid", string(in.UID))
		v.given(at, "namespace", in.Namespace)
		v.given(at, "name", in.Name)
		v.given(at, "workload", in.Workload)
		v.given(at, "revision", in.Revision)
		if in.Slot < 0 || in.LeaseSeconds < 0 {
			v.invalid(at, fmt.Sprintf("slot %d with a lease of %d seconds is none", in.Slot, in.LeaseSeconds), "neither is below 0")
		}
		if i > 0 && all[i-1].UID >= in.UID {
			v.invalid(at, "the instances are not in order", "by their UIDs, each once")
		}
	}
}

// digits wants so many hexadecimal digits.
func (v *validator) digits(path, text string, n int) {
	if !isDigits(text, n) {
		v.invalid(path, fmt.Sprintf("%q is not %d hexadecimal digits", clip(text), n), "0-9 and a-f")
	}
}

// isDigits reports whether a text is so many hexadecimal digits, in lower case.
func isDigits(text string, n int) bool {
	return len(text) == n && strings.Trim(text, "0123456789abcdef") == ""
}
