package declare

import (
	"fmt"
	"strings"

	"tako.dev/tako/internal/reason"
)

// contentFrom checks where the content of a file comes from: that there is one source, what it is called, and what does not go
// with it.
func (v *validator) contentFrom(f *File) {
	const field = "file.contentFrom"
	from := f.ContentFrom
	if f.Content != "" {
		v.fault(v.path(field), reason.FieldNotAllowed, "the file has a content already", "keep one of content and contentFrom")
	}
	switch {
	case from.Secret == nil && from.ConfigMap == nil:
		v.fault(v.path(field), reason.MissingField, v.path(field)+` has neither "secret" nor "configMap"`, "write for example contentFrom: {secret: {name: web, key: password}}")
	case from.Secret != nil && from.ConfigMap != nil:
		v.fault(v.path(field+".configMap"), reason.FieldNotAllowed, "the content comes from a Secret already", "keep one of secret and configMap")
	}
	if from.Secret != nil {
		v.keySelector(field+".secret", "Secret", from.Secret)
		if v.resource.Expand {
			v.fault(v.path("expand"), reason.FieldNotAllowed, "nothing is expanded in a file from a Secret: its content is not known before a host opens it", "leave expand out")
		}
	}
	if from.ConfigMap != nil {
		v.keySelector(field+".configMap", "ConfigMap", from.ConfigMap)
	}
}

func (v *validator) keySelector(field, kind string, s *KeySelector) {
	cluster := v.config.Kind == KindClusterNodeConfig
	switch {
	case cluster && s.Namespace == "":
		v.fault(v.path(field+".namespace"), reason.MissingField, v.path(field)+` has no "namespace"`, "a ClusterNodeConfig is in none: write which one the "+kind+" is in")
	case cluster && !isDomainLabel(s.Namespace):
		v.invalid(v.path(field+".namespace"), fmt.Sprintf("%q is not a namespace", clipText(s.Namespace)), "up to 63 of a-z, 0-9 and -, with a letter or digit first and last")
	case !cluster && s.Namespace != "":
		v.fault(v.path(field+".namespace"), reason.FieldNotAllowed, "a NodeConfig takes from its own namespace only", "leave it out, or write kind: ClusterNodeConfig")
	}
	if s.Name == "" {
		v.fault(v.path(field+".name"), reason.MissingField, v.path(field)+` has no "name"`, "")
	} else if !isSubdomain(s.Name) {
		v.invalid(v.path(field+".name"), fmt.Sprintf("%q is not a name", clipText(s.Name)), subdomainRule)
	}
	if s.Key == "" {
		v.fault(v.path(field+".key"), reason.MissingField, v.path(field)+` has no "key"`, "")
	} else if !isDataKey(s.Key) {
		v.invalid(v.path(field+".key"), fmt.Sprintf("%q is not a key", clipText(s.Key)), "up to 253 letters, digits and any of - _ .")
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
