package order

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	core "k8s.io/api/core/v1"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/declare"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/cli/documents"
	"tako.dev/tako/internal/reason"
)

// config is a config of some files with what its files may take their contents from.
type config struct {
	id        string // of its layer
	namespace string // empty for one of all namespaces
	spec      *declare.NodeConfigSpec
	maps      map[string]map[string][]byte // of ConfigMaps, by NAMESPACE/NAME
}

// find finds the config that is meant among documents: by the ID of its layer, or the only one. namespace is that of what names none.
func find(wanted, namespace string, all []documents.Document) (*config, error) {
	c := &config{maps: map[string]map[string][]byte{}}
	var ids []string
	for i := range all {
		d := &all[i]
		if d.Object.GetNamespace() == "" && d.Kind().Kind != v1alpha1.KindClusterNodeConfig {
			d.Object.SetNamespace(namespace)
		}
		switch d.Kind() {
		case v1alpha1.SchemeGroupVersion.WithKind(v1alpha1.KindNodeConfig), v1alpha1.SchemeGroupVersion.WithKind(v1alpha1.KindClusterNodeConfig):
			var x v1alpha1.NodeConfig // both have its form
			if err := read(d, &x); err != nil {
				return nil, err
			}
			id := strings.Join(slices.DeleteFunc([]string{d.Kind().Kind, x.Namespace, x.Name}, func(s string) bool { return s == "" }), "/")
			ids = append(ids, id)
			if wanted == "" || wanted == id {
				c.id, c.namespace, c.spec = id, x.Namespace, &x.Spec
			}
		case core.SchemeGroupVersion.WithKind("ConfigMap"):
			var m core.ConfigMap
			if err := read(d, &m); err != nil {
				return nil, err
			}
			c.maps[m.Namespace+"/"+m.Name] = texts(&m)
		}
	}
	switch {
	case len(ids) == 0:
		return nil, &reason.Error{Code: reason.NothingDeclared, Doing: "find a config", Cause: errors.New("there is no NodeConfig and no ClusterNodeConfig in these files")}
	case c.spec == nil:
		return nil, &reason.Error{Code: reason.Usage, Doing: "find config " + wanted, Cause: errors.New("it is not in these files"), Hint: "in them is: " + strings.Join(ids, ", ")}
	case wanted == "" && len(ids) > 1:
		return nil, &reason.Error{Code: reason.Usage, Doing: "find the config", Cause: errors.New("there are several in these files"), Hint: "say which: " + strings.Join(ids, ", ")}
	}
	return c, nil
}

// read reads a document as the server does.
func read(d *documents.Document, into any) error {
	text, err := d.Object.MarshalJSON()
	if err == nil {
		err = json.Unmarshal(text, into)
	}
	if err != nil {
		return &reason.Error{Code: reason.WrongType, Doing: "read " + d.String(), Cause: err}
	}
	return nil
}

func texts(m *core.ConfigMap) map[string][]byte {
	data := make(map[string][]byte, len(m.Data)+len(m.BinaryData))
	for key, b := range m.BinaryData {
		data[key] = b
	}
	for key, text := range m.Data {
		data[key] = []byte(text)
	}
	return data
}

// compile makes the layer of the config, as a server does. The errors are ContentNeedsServer, LayerReference and BodyTooLarge.
func (c *config) compile() ([]catalog.Item, error) {
	return catalog.CompileWith(c.spec.Effective(), c.content)
}

// content is what a file takes from elsewhere.
func (c *config) content(r *declare.Resource) (catalog.Content, error) {
	s := r.Source()
	if s.Secret != nil {
		return catalog.Content{}, &reason.Error{Code: reason.ContentNeedsServer, Doing: "take the content of " + r.Title() + " from Secret " + s.Secret.Name,
			Cause: errors.New("hosts have keys to what servers have sealed, and to nothing else"), Hint: "sign a config without it; what the host has of its Secrets stays where another config declares it"}
	}
	namespace := c.namespace
	if namespace == "" {
		namespace = s.ConfigMap.Namespace
	}
	name := namespace + "/" + s.ConfigMap.Name
	data, has := c.maps[name][s.ConfigMap.Key]
	var why string
	switch {
	case c.maps[name] == nil:
		why = "it is not in these files"
	case !has:
		why = "it has no such key"
	case len(data) > declare.BodyBytesMax:
		why = fmt.Sprintf("it is longer than %d bytes", declare.BodyBytesMax)
	case !utf8.Valid(data):
		why = "it is no UTF-8 text"
	default:
		return catalog.Content{Text: string(data)}, nil
	}
	return catalog.Content{}, &reason.Error{Code: reason.LayerReference, Doing: fmt.Sprintf("take the content of %s from key %s of ConfigMap %s", r.Title(), s.ConfigMap.Key, name),
		Cause: errors.New(why), Hint: "give the file of the ConfigMap with -f, too"}
}
