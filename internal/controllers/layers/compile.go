package layers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/declare"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/reason"
)

// compile makes the result of a revision and keeps it. An error is of the moment, or about the revision itself, and is not kept.
func (l *Layers) compile(ctx context.Context, id revisionID) (*result, error) {
	resources, namespace, err := l.revision(ctx, id)
	if err != nil {
		return nil, err
	}
	c := compilation{layers: l, namespace: namespace, values: map[reference]value{}, keys: map[string]KeyUse{}}
	refs := c.references(resources)
	versions := l.shelf.begin(id.config, refs)
	defer l.shelf.end(id.config, refs)
	for _, ref := range refs {
		if err := c.read(ctx, ref, versions[ref]); err != nil {
			return nil, err
		}
	}
	r := &result{read: make(map[reference]reading, len(refs))}
	for ref, v := range c.values {
		r.read[ref] = v.reading
	}
	if r.layer, err = c.layer(id, resources); err != nil {
		e := reason.Of(err)
		if e.Code != reason.LayerReference && e.Code != reason.BodyTooLarge {
			return nil, err
		}
		r.err = e
	}
	l.shelf.put(id, r, time.Now())
	return r, nil
}

// revision reads the resources of a revision, and the namespace that they take values from where they name none.
func (l *Layers) revision(ctx context.Context, id revisionID) (resources []declare.Resource, namespace string, err error) {
	doing := "compile revision " + id.revision + " of " + id.config
	kind, name, _ := strings.Cut(id.config, "/")
	switch kind {
	case v1alpha1.KindNodeConfig:
		namespace, name, _ = strings.Cut(name, "/")
		var r v1alpha1.Revision
		err = l.objects.Get(ctx, types.NamespacedName{Namespace: namespace, Name: id.revision}, &r)
		resources = r.Spec.Resources
	case v1alpha1.KindClusterNodeConfig:
		var r v1alpha1.ClusterRevision
		err = l.objects.Get(ctx, types.NamespacedName{Name: id.revision}, &r)
		resources = r.Spec.Resources
	default:
		return nil, "", &reason.Error{Code: reason.InternalFault, Doing: doing, Cause: errors.New("there are no configs of that kind")}
	}
	if apierrors.IsNotFound(err) {
		return nil, "", &reason.Error{Code: reason.RevisionUnusable, Doing: doing, Cause: errors.New("there is no such revision")}
	}
	if err != nil {
		return nil, "", &reason.Error{Code: reason.StoreUnreachable, Doing: doing, Cause: err}
	}
	// The name stands for the content, here and on every other server. That it does is what makes one compile of it enough.
	digest, err := catalog.RevisionDigest(resources)
	if err != nil {
		return nil, "", err
	}
	if is := catalog.RevisionName(name, digest); is != id.revision {
		return nil, "", &reason.Error{Code: reason.RevisionUnusable, Doing: doing, Cause: fmt.Errorf("what it holds, as this version reads it, has the name %s", is),
			Hint: "delete the revision, it is made again; or bring the server up to date, if a later version has written it"}
	}
	return resources, namespace, nil
}

// compilation is one compile.
type compilation struct {
	layers    *Layers
	namespace string // of the config; empty for one of all namespaces
	values    map[reference]value
	keys      map[string]KeyUse // by ID
}

// value is an object that values are taken from.
type value struct {
	reading
	uid  string
	data map[string][]byte
}

// pick is where one file takes its content from.
func (c *compilation) pick(s *declare.ContentSource) (reference, string) {
	kind, k := kindConfigMap, s.ConfigMap
	if s.Secret != nil {
		kind, k = kindSecret, s.Secret
	}
	namespace := c.namespace
	if namespace == "" {
		namespace = k.Namespace
	}
	return reference{kind, namespace, k.Name}, k.Key
}

func sourceOf(r *declare.Resource) *declare.ContentSource {
	s := r.Source()
	if s == nil || s.Secret == nil && s.ConfigMap == nil {
		return nil
	}
	return s
}

func (c *compilation) references(resources []declare.Resource) []reference {
	var refs []reference
	for i := range resources {
		if s := sourceOf(&resources[i]); s != nil {
			if ref, _ := c.pick(s); !slices.Contains(refs, ref) {
				refs = append(refs, ref)
			}
		}
	}
	return refs
}

// read reads an object; heard is the newest version that is known of.
func (c *compilation) read(ctx context.Context, ref reference, heard uint64) error {
	v := value{reading: reading{version: heard}}
	secret, configMap := &core.Secret{}, &core.ConfigMap{}
	var into runtime.Object = configMap
	if ref.kind == kindSecret {
		into = secret
	}
	err := c.layers.objects.Get(ctx, types.NamespacedName{Namespace: ref.namespace, Name: ref.name}, into)
	switch {
	case apierrors.IsNotFound(err):
	case err != nil:
		return &reason.Error{Code: reason.StoreUnreachable, Doing: fmt.Sprintf("read %s %s/%s", ref.kind, ref.namespace, ref.name), Cause: err}
	case ref.kind == kindSecret:
		v = value{reading{number(secret.ResourceVersion), true}, string(secret.UID), secret.Data}
	default:
		v = value{reading{number(configMap.ResourceVersion), true}, string(configMap.UID), texts(configMap)}
	}
	c.values[ref] = v
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

// layer compiles. The errors are LayerReference, BodyTooLarge and InternalFault.
func (c *compilation) layer(id revisionID, resources []declare.Resource) (*Layer, error) {
	items, err := catalog.CompileWith(resources, c.content)
	if err != nil {
		e := *reason.Of(err)
		e.Doing = "compile revision " + id.revision + " of " + id.config + ": " + e.Doing
		return nil, &e
	}
	layer := NewLayer(items)
	// What the layer before has too is shared with it, and so costs nothing while both are kept.
	if before := c.layers.shelf.latest(id.config); before != nil {
		if layer.Trie, err = before.Trie.Apply(catalog.Difference(before.Trie, layer.Trie, catalog.Digest{})); err != nil {
			return nil, err
		}
		for digest := range layer.bodies {
			if same, ok := before.bodies[digest]; ok {
				layer.bodies[digest] = same
			}
		}
	}
	for _, k := range c.keys {
		layer.Keys = append(layer.Keys, k)
	}
	slices.SortFunc(layer.Keys, func(a, b KeyUse) int { return strings.Compare(a.ID, b.ID) })
	return layer, nil
}

// content is what a file takes from elsewhere.
func (c *compilation) content(r *declare.Resource) (catalog.Content, error) {
	s := sourceOf(r)
	ref, key := c.pick(s)
	v := c.values[ref]
	data, has := v.data[key]
	unusable := func(why string) error {
		return &reason.Error{Code: reason.LayerReference, Doing: fmt.Sprintf("take the content of %s from key %s of %s %s/%s", r.Title(), key, ref.kind, ref.namespace, ref.name), Cause: errors.New(why)}
	}
	switch {
	case !v.there:
		return catalog.Content{}, unusable("there is no such " + ref.kind)
	case !has:
		return catalog.Content{}, unusable("it has no such key")
	case len(data) > declare.BodyBytesMax:
		return catalog.Content{}, unusable(fmt.Sprintf("it is longer than %d bytes", declare.BodyBytesMax))
	case s.Secret == nil && !utf8.Valid(data):
		return catalog.Content{}, unusable("it is no UTF-8 text")
	case s.Secret == nil:
		return catalog.Content{Text: string(data)}, nil
	}
	return catalog.Content{Sealed: c.seal(v.uid, ref, key, data)}, nil
}
