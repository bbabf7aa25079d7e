package declare

import (
	"fmt"
	"strings"

	"tako.dev/tako/internal/reason"
)

// ContentSource is where a text of a resource comes from, such as the content of a file. Exactly one of the fields is set; object and path
// are for files only.
//
// +k8s:deepcopy-gen=true
// +k8s:openapi-gen=true
// +k8s:openapi-model-package=dev.tako.declare
type ContentSource struct {
	// Secret makes the text a value of a Secret. It is private then, and nothing is expanded in it.
	Secret *KeySelector `json:"secret,omitempty"`
	// ConfigMap makes the text a value of a ConfigMap.
	ConfigMap *KeySelector `json:"configMap,omitempty"`
	// Object makes the content what was put on the servers by `tako content put`: any bytes, of any size up to 1 GiB.
	Object *ObjectReference `json:"object,omitempty"`
	// Path makes the content that of another file of the host. Nobody but root and the agent's user may be able to change that one.
	Path string `json:"path,omitempty"`
}

// KeySelector picks one value.
//
// +k8s:deepcopy-gen=true
// +k8s:openapi-gen=true
// +k8s:openapi-model-package=dev.tako.declare
type KeySelector struct {
	// Namespace is that of the object. Only in a ClusterNodeConfig, and required there: a NodeConfig takes from its own.
	Namespace string `json:"namespace,omitempty"`
	// Name is the object's name.
	Name string `json:"name"`
	// Key is the value's key in the object's data.
	Key string `json:"key"`
}

// sourced is a body of which one text may come from elsewhere.
type sourced interface {
	// source is where it comes from; nil where it is the body's own.
	source() *ContentSource
	// fill returns the body with a text, and with another source. Its error, which quotes nothing of the text, says why that cannot be.
	fill(text string, from *ContentSource) (body, error)
}

// Source returns where the resource's content comes from; nil where everything is its own.
func (r *Resource) Source() *ContentSource {
	_, b := r.typed()
	if s, ok := b.(sourced); ok {
		return s.source()
	}
	return nil
}

// FromSecret reports whether the resource's content is a value of a Secret.
func (r *Resource) FromSecret() bool { return r.Source().secret() }

func (s *ContentSource) secret() bool { return s != nil && s.Secret != nil }

// ofCluster reports whether a server puts the content into what it sends to hosts.
func (s *ContentSource) ofCluster() bool { return s != nil && (s.Secret != nil || s.ConfigMap != nil) }

// Filled returns the resource with a content in the place of its source. A Secret stays its source, because that says what the content
// is. A resource without a source is returned as it is. The error is InvalidValue, for a content that is none of its kind, and quotes
// nothing of it.
func (r *Resource) Filled(content string) (Resource, error) {
	out := *r
	_, b := r.typed()
	s, ok := b.(sourced)
	if !ok || s.source() == nil {
		return out, nil
	}
	from := s.source()
	if !from.secret() {
		from = nil
	}
	filled, err := s.fill(content, from)
	if err != nil {
		return Resource{}, &reason.Error{Code: reason.InvalidValue, Doing: "take the content of " + r.Title(), Cause: err}
	}
	switch filled := filled.(type) {
	case *File:
		out.File = filled
	case *User:
		out.User = filled
	case *Exec:
		out.Exec = filled
	case *Package:
		out.Package = filled
	case *Fragment:
		out.Fragment = filled
	}
	return out, nil
}

// contentSource checks where a content comes from: that there is one source, what it is called, and what does not go with it. own says
// that the resource has that content itself.
func (v *validator) contentSource(field string, from *ContentSource, own bool) {
	if from == nil {
		return
	}
	if own {
		what := strings.TrimSuffix(field[strings.IndexByte(field, '.')+1:], "From")
		v.fault(v.path(field), reason.FieldNotAllowed, "there is a "+what+" already", fmt.Sprintf("keep one of %s and %sFrom", what, what))
	}
	if forFile := field == fileContentFrom; forFile {
		v.bytesSource(field, from.Object, from.Path)
	} else {
		v.noBytesSource(field, from)
	}
	given := 0
	for _, set := range []bool{from.Secret != nil, from.ConfigMap != nil, from.Object != nil, from.Path != ""} {
		if set {
			given++
		}
	}
	switch {
	case given == 0:
		v.fault(v.path(field), reason.MissingField, v.path(field)+` has neither "secret" nor "configMap"`, "write for example {secret: {name: web, key: password}}")
	case from.Secret != nil && from.ConfigMap != nil:
		v.fault(v.path(field+".configMap"), reason.FieldNotAllowed, "the content comes from a Secret already", "keep one of secret and configMap")
	case given > 1:
		v.fault(v.path(field), reason.FieldNotAllowed, v.path(field)+" has several sources", "keep one of secret, configMap, object and path")
	}
	if from.Secret != nil {
		v.keySelector(v.path(field+".secret"), "Secret", from.Secret)
		if v.resource.Expand {
			v.fault(v.path("expand"), reason.FieldNotAllowed, "nothing is expanded in what a Secret goes into: its content is not known before a host opens it", "leave expand out")
		}
	}
	if from.ConfigMap != nil {
		v.keySelector(v.path(field+".configMap"), "ConfigMap", from.ConfigMap)
	}
}

// keySelector checks which value of an object of a kind is meant at a path.
func (v *validator) keySelector(path, kind string, s *KeySelector) {
	cluster := v.config.Kind == KindClusterNodeConfig
	switch {
	case cluster && s.Namespace == "":
		v.fault(path+".namespace", reason.MissingField, path+` has no "namespace"`, "a ClusterNodeConfig is in none: write which one the "+kind+" is in")
	case cluster && !isDomainLabel(s.Namespace):
		v.invalid(path+".namespace", fmt.Sprintf("%q is not a namespace", clipText(s.Namespace)), "up to 63 of a-z, 0-9 and -, with a letter or digit first and last")
	case !cluster && s.Namespace != "":
		v.fault(path+".namespace", reason.FieldNotAllowed, "a NodeConfig takes from its own namespace only", "leave it out, or write kind: ClusterNodeConfig")
	}
	if s.Name == "" {
		v.fault(path+".name", reason.MissingField, path+` has no "name"`, "")
	} else if !isSubdomain(s.Name) {
		v.invalid(path+".name", fmt.Sprintf("%q is not a name", clipText(s.Name)), subdomainRule)
	}
	if s.Key == "" {
		v.fault(path+".key", reason.MissingField, path+` has no "key"`, "")
	} else if !isDataKey(s.Key) {
		v.invalid(path+".key", fmt.Sprintf("%q is not a key", clipText(s.Key)), "up to 253 letters, digits and any of - _ .")
	}
}

// isDataKey reports whether a Secret or a ConfigMap may have a key, as Kubernetes says.
func isDataKey(key string) bool {
	const keyBytesMax = 253
	if len(key) > keyBytesMax || key == "." || strings.HasPrefix(key, "..") {
		return false
	}
	return strings.Trim(key, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.") == ""
}
