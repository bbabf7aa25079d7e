package declare

import (
	"fmt"
	"strings"

	"tako.dev/tako/internal/reason"
)

// Validate returns every mistake of a config that can be seen without a host and without other configs, each with its
// path and without a place; Document.Validate adds the places. Cycles are found where the order is computed.
func Validate(c *NodeConfig) []Fault {
	v := validator{config: c}
	v.header()
	v.metadata()
	v.selector("spec.selector", &c.Spec.Selector)
	v.priority()
	v.drift("spec.drift", c.Spec.Drift)
	v.windows()
	v.rollout()
	v.bundle(c.Spec.Bundle)
	if acting(c.Spec.Resources) > ResourcesMax {
		v.fault("spec.resources", reason.TooManyResources, fmt.Sprintf("more than %d resources", ResourcesMax), "a node acts on no more: spread them over several nodes, or put many small files into one package")
		return v.faults
	}
	v.resources()
	return v.faults
}

// Validate returns what Validate finds in the document's config, with places.
func (d *Document) Validate() []Fault { return d.Tell(Validate(d.Config)) }

// Tell returns mistakes that were found in what was read of the document, with places. It leaves out what only follows from a mistake that
// the reader has said already.
func (d *Document) Tell(faults []Fault) []Fault {
	said := map[string]bool{}
	parents := map[string]bool{}
	for _, path := range d.broken {
		said[path] = true
		for p := parentPath(path); p != ""; p = parentPath(p) {
			parents[p] = true
		}
	}
	var out []Fault
	for _, f := range faults {
		follows := d.incomplete && f.Code == reason.DanglingReference ||
			parents[f.Path] && (f.Code == reason.NotExactlyOneType || f.Code == reason.MissingField)
		for p := f.Path; p != "" && !follows; p = parentPath(p) {
			follows = said[p]
		}
		if !follows {
			out = append(out, f)
		}
	}
	return d.Locate(out)
}

// parentPath takes the last step off a path; "" has no parent. A key of a map may hold any sign, but a path that is cut
// inside one only leads to no place.
func parentPath(path string) string {
	return path[:max(strings.LastIndexAny(path, ".["), 0)]
}

// validator collects the mistakes of one config.
type validator struct {
	config *NodeConfig
	faults []Fault

	// Of the resource at hand:
	index    int
	resource *Resource
}

// fault records a mistake and returns it to be completed at once.
func (v *validator) fault(path string, code reason.Code, message, hint string) *Fault {
	f := Fault{Code: code, Path: path, Message: message, Hint: hint}
	if len(v.faults) == faultsMax {
		return &f
	}
	v.faults = append(v.faults, f)
	return &v.faults[len(v.faults)-1]
}

func (v *validator) invalid(path, message, hint string) {
	v.fault(path, reason.InvalidValue, message, hint)
}

// atMost refuses a list or mapping of more than limit members, which nobody need look at one by one then.
func (v *validator) atMost(path string, n, limit int, what, hint string) bool {
	if n > limit {
		v.invalid(path, fmt.Sprintf("there are %d %s, at most %d are allowed", n, what, limit), hint)
	}
	return n <= limit
}

func (v *validator) header() {
	c := v.config
	if c.APIVersion == "" {
		v.fault("apiVersion", reason.MissingField, `the declaration has no "apiVersion"`, "write apiVersion: "+APIVersion)
	} else if c.APIVersion != APIVersion {
		v.fault("apiVersion", reason.UnknownAPIVersion, fmt.Sprintf("unknown apiVersion %q", clipText(c.APIVersion)), "write "+APIVersion)
	}
	switch c.Kind {
	case KindNodeConfig, KindClusterNodeConfig:
	case "":
		v.fault("kind", reason.MissingField, `the declaration has no "kind"`, "write kind: "+KindNodeConfig+" or kind: "+KindClusterNodeConfig)
	default:
		v.fault("kind", reason.UnknownKind, fmt.Sprintf("unknown kind %q", clipText(c.Kind)), didYouMean(c.Kind, []string{KindNodeConfig, KindClusterNodeConfig}))
	}
}

func (v *validator) metadata() {
	m := &v.config.Metadata
	if m.Name == "" {
		v.fault("metadata.name", reason.MissingField, `metadata has no "name"`, "")
	} else if !isSubdomain(m.Name) {
		v.invalid("metadata.name", fmt.Sprintf("%q is not a name", clipText(m.Name)), subdomainRule)
	}
	if m.Namespace != "" && !isDomainLabel(m.Namespace) {
		v.invalid("metadata.namespace", fmt.Sprintf("%q is not a namespace", clipText(m.Namespace)), "up to 63 of a-z, 0-9 and -, with a letter or digit first and last")
	}
	if m.Namespace != "" && v.config.Kind == KindClusterNodeConfig {
		v.fault("metadata.namespace", reason.FieldNotAllowed, "a ClusterNodeConfig has no namespace", "leave it out, or write kind: NodeConfig")
	}
	v.labels("metadata.labels", m.Labels)
	size := 0
	for _, key := range sortedKeys(m.Annotations) {
		size += len(key) + len(m.Annotations[key])
		if message := labelKeyMistake(key); message != "" {
			v.invalid(keyPath("metadata.annotations", key), message, labelKeyRule)
		}
	}
	if size > annotationsBytesMax {
		v.invalid("metadata.annotations", fmt.Sprintf("the annotations have %d bytes, at most %d are allowed", size, annotationsBytesMax), "")
	}
}

func (v *validator) labels(path string, labels map[string]string) {
	if !v.atMost(path, len(labels), LabelsMax, "labels", "") {
		return
	}
	for _, key := range sortedKeys(labels) {
		if message := labelKeyMistake(key); message != "" {
			v.invalid(keyPath(path, key), message, labelKeyRule)
		}
		v.labelValue(keyPath(path, key), labels[key])
	}
}

func (v *validator) labelValue(path, value string) {
	if !isLabelValue(value) {
		v.invalid(path, fmt.Sprintf("%q is not a label value", clipText(value)), labelValueRule)
	}
}

// noFact refuses a fact in a selector: a host says what its facts are, and so could say what it gets.
func (v *validator) noFact(path, key string) {
	if strings.HasPrefix(key, "facts.") {
		v.invalid(path, fmt.Sprintf("%q is a fact, and facts select nothing: a host could choose for itself what it gets", clipText(key)),
			"select by a label that people give, and write the fact in `when` of the resources")
	}
}

func (v *validator) selector(path string, s *Selector) {
	v.labels(path+".matchLabels", s.MatchLabels)
	for _, key := range sortedKeys(s.MatchLabels) {
		v.noFact(keyPath(path+".matchLabels", key), key)
	}
	if !v.atMost(path+".matchExpressions", len(s.MatchExpressions), ExpressionsMax, "conditions", "") {
		return
	}
	for i := range s.MatchExpressions {
		r, at := &s.MatchExpressions[i], indexPath(path+".matchExpressions", i)
		if message := labelKeyMistake(r.Key); message != "" {
			v.invalid(at+".key", message, labelKeyRule)
		}
		v.noFact(at+".key", r.Key)
		switch r.Operator {
		case OpIn, OpNotIn:
			if len(r.Values) == 0 {
				v.fault(at+".values", reason.MissingField, fmt.Sprintf("operator %s needs values", r.Operator), "write values: [a, b], or use Exists or DoesNotExist")
			}
		case OpExists, OpDoesNotExist:
			if len(r.Values) > 0 {
				v.fault(at+".values", reason.FieldNotAllowed, fmt.Sprintf("operator %s takes no values", r.Operator), "leave them out, or use In or NotIn")
			}
		default:
			v.unknownWord(at+".operator", "operator", string(r.Operator), []string{"In", "NotIn", "Exists", "DoesNotExist"})
		}
		if !v.atMost(at+".values", len(r.Values), ValuesMax, "values", "give the nodes that are meant a label of their own, and select by that") {
			continue
		}
		for j, value := range r.Values {
			v.labelValue(indexPath(at+".values", j), value)
		}
	}
}

// unknownWord refuses a word that is none of a closed set.
func (v *validator) unknownWord(path, what, got string, words []string) {
	v.invalid(path, fmt.Sprintf("unknown %s %q", what, clipText(got)), didYouMean(got, words))
}

func (v *validator) drift(path string, d Drift) {
	switch d {
	case "", DriftRevert, DriftObserve:
	default:
		v.unknownWord(path, "answer to drift", string(d), []string{string(DriftRevert), string(DriftObserve)})
	}
}

func (v *validator) priority() {
	p := v.config.Spec.Priority
	if p == nil {
		return
	}
	low, high := 0, priorityMax
	if v.config.Kind == KindClusterNodeConfig {
		low, high = clusterPriorityMin, clusterPriorityMax
	}
	if *p < low || *p > high {
		v.invalid("spec.priority", fmt.Sprintf("priority %d is outside %d to %d, the range of a %s", *p, low, high, v.config.Kind), "")
	}
}

func (p IntOrPercent) valid() bool {
	n, percent, ok := p.Parse()
	return ok && n >= 1 && (!percent || n <= 100)
}

// resources validates each resource, and what they say about one another.
func (v *validator) resources() {
	all := v.config.Spec.Resources
	byName := make(map[string]int, len(all))
	byClaim := make(map[Claim]int, len(all))
	for i := range all {
		v.index, v.resource = i, &all[i]
		v.one()
		if name := all[i].Name; name != "" {
			if first, twice := byName[name]; twice {
				f := v.fault(v.path("name"), reason.DuplicateName, fmt.Sprintf("name %q is used twice", clipText(name)), "names are unique in a config")
				f.Related = []Place{{Path: ResourcePath(first) + ".name", Note: "first used here"}}
			} else {
				byName[name] = i
			}
		}
		if claim := all[i].Claim(); claim.ID != "" {
			if first, twice := byClaim[claim]; twice {
				v.duplicateClaim(claim, first)
			} else {
				byClaim[claim] = i
			}
		}
	}
	v.insideArchives(byClaim)
	v.references(byName)
}

func (v *validator) duplicateClaim(claim Claim, first int) {
	other := &v.config.Spec.Resources[first]
	f := v.fault(v.path(v.resource.claimField()), reason.DuplicateClaim,
		fmt.Sprintf("%s %s is claimed by %s already", claim.Kind, clipText(claim.ID), other.Title()), "only one resource of a config can be about one thing: remove one of them")
	f.Related = []Place{{Path: ResourcePath(first) + "." + other.claimField(), Note: "first claimed here"}}
}

// references checks that relations name other resources of this config, and that who is notified can be.
func (v *validator) references(byName map[string]int) {
	var names []string // made when the first suggestion is needed
	suggestions := 0
	for i := range v.config.Spec.Resources {
		v.index, v.resource = i, &v.config.Spec.Resources[i]
		for _, list := range v.resource.references() {
			if !v.atMost(v.path(list.field), len(*list.names), ReferencesMax, "names", "") {
				continue
			}
			before := make(map[string]bool, len(*list.names))
			for j, name := range *list.names {
				path := v.path(indexPath(list.field, j))
				if other, ok := byName[name]; ok {
					v.reference(path, list.field, other, before[name])
					before[name] = true
					continue
				}
				hint := ""
				if suggestions++; suggestions <= faultsShownMax { // each looks at every name
					if names == nil {
						names = sortedKeys(byName)
					}
					hint = didYouMean(name, names)
				}
				v.fault(path, reason.DanglingReference, fmt.Sprintf("%s names %q, which is no resource of this config", list.field, clipText(name)), hint)
			}
		}
	}
}

// reference checks a name of another resource; twice says that it stands in the list already.
func (v *validator) reference(path, field string, other int, twice bool) {
	target := &v.config.Spec.Resources[other]
	if target.Delivered() {
		v.invalid(path, fmt.Sprintf("%s names %s, which is delivered and not acted upon", field, target.Title()), "remove it: data has no order")
		return
	}
	if twice {
		v.invalid(path, fmt.Sprintf("%s names %q twice", field, clipText(target.Name)), "remove one of them")
		return
	}
	if other == v.index {
		v.invalid(path, fmt.Sprintf("%s names the resource itself", field), "remove it")
		return
	}
	if _, b := target.typed(); field == "notify" && b != nil && !isNotified(b) {
		v.invalid(path, fmt.Sprintf("notify names %s, which cannot be notified", target.Title()), "to order resources, use require in the later one")
	}
	if _, b := v.resource.typed(); field == "subscribe" && b != nil && !isNotified(b) {
		v.invalid(path, v.resource.Title()+" cannot be notified", "to order resources, use require in the later one")
	}
}
