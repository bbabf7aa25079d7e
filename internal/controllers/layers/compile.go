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
	"tako.dev/tako/declare/workload"
	"tako.dev/tako/internal/bundle"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/reason"
)

// compile makes the result of a revision and keeps it. An error is of the moment, or about the revision itself, and is not kept.
func (l *Layers) compile(ctx context.Context, id revisionID) (*result, error) {
	declared, namespace, err := l.revision(ctx, id)
	if err != nil {
		return nil, err
	}
	c := compilation{layers: l, namespace: namespace, values: map[reference]value{}, keys: map[string]KeyUse{}}
	refs := c.references(declared)
	versions := l.shelf.begin(id.config, refs)
	defer l.shelf.end(id.config, refs)
	for _, ref := range refs {
		if err := c.take(ctx, ref, versions[ref]); err != nil {
			return nil, err
		}
	}
	r := &result{read: make(map[reference]reading, len(refs))}
	for ref, v := range c.values {
		r.read[ref] = v.reading
	}
	if r.layer, err = c.layer(id, declared); err != nil {
		e := reason.Of(err)
		if !Lasting(e) {
			return nil, err
		}
		r.err = e
	}
	l.shelf.put(id, r, time.Now())
	return r, nil
}

// Lasting reports whether an error of Of stays until Changes tells of the config.
func Lasting(err error) bool {
	e := reason.Of(err)
	return e != nil && slices.Contains([]reason.Code{reason.LayerReference, reason.BodyTooLarge, reason.BundleMissing, reason.DuplicateClaim}, e.Code)
}

// content is what a revision declares.
type content struct {
	resources []declare.Resource
	bundle    *declare.BundleReference
	template  *workload.Template // of a revision of a workload, which has no resources
	of        string             // whose revision it is, for people
}

// revision reads a revision, and the namespace that it takes values from where it names none.
func (l *Layers) revision(ctx context.Context, id revisionID) (is content, namespace string, err error) {
	doing := "compile revision " + id.revision + " of " + id.config
	kind, name, _ := strings.Cut(id.config, "/")
	switch kind {
	case v1alpha1.KindNodeConfig, v1alpha1.KindRevision:
		namespace, name, _ = strings.Cut(name, "/")
		var r v1alpha1.Revision
		err = l.objects.Get(ctx, types.NamespacedName{Namespace: namespace, Name: id.revision}, &r)
		is = content{resources: r.Spec.Resources, bundle: r.Spec.Bundle, of: id.config}
		if kind == v1alpha1.KindRevision {
			is = templateOf(&r)
		}
	case v1alpha1.KindClusterNodeConfig:
		var r v1alpha1.ClusterRevision
		err = l.objects.Get(ctx, types.NamespacedName{Name: id.revision}, &r)
		is = content{resources: r.Spec.Resources, bundle: r.Spec.Bundle, of: id.config}
	default:
		return content{}, "", &reason.Error{Code: reason.InternalFault, Doing: doing, Cause: errors.New("there are no configs of that kind")}
	}
	if apierrors.IsNotFound(err) {
		return content{}, "", &reason.Error{Code: reason.RevisionUnusable, Doing: doing, Cause: errors.New("there is no such revision")}
	}
	if err != nil {
		return content{}, "", &reason.Error{Code: reason.StoreUnreachable, Doing: doing, Cause: err}
	}
	// The name stands for the content, here and on every other server. That it does is what makes one compile of it enough.
	if kind == v1alpha1.KindRevision {
		return is, namespace, checkTemplate(doing, id, is.template)
	}
	digest, err := catalog.RevisionDigestWith(is.resources, is.bundle)
	if err != nil {
		return content{}, "", err
	}
	if read := catalog.RevisionName(name, digest); read != id.revision {
		return content{}, "", &reason.Error{Code: reason.RevisionUnusable, Doing: doing, Cause: fmt.Errorf("what it holds, as this version reads it, has the name %s", read),
			Hint: "delete the revision, it is made again; or bring the server up to date, if a later version has written it"}
	}
	return is, namespace, nil
}

// compilation is one compile.
type compilation struct {
	layers    *Layers
	namespace string // of the config; empty for one of all namespaces
	values    map[reference]value
	keys      map[string]KeyUse // by ID
	bundle    *Bundle           // nil where it names none, or that is not here
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

func (c *compilation) references(of content) []reference {
	if of.template != nil {
		return c.templateReferences(of.template)
	}
	var refs []reference
	if of.bundle != nil {
		refs = append(refs, bundleReference(of.bundle.Digest))
	}
	for i := range of.resources {
		if s := sourceOf(&of.resources[i]); s != nil {
			if ref, _ := c.pick(s); !slices.Contains(refs, ref) {
				refs = append(refs, ref)
			}
		}
	}
	return refs
}

// take reads what a revision names; heard is the newest version that is known of.
func (c *compilation) take(ctx context.Context, ref reference, heard uint64) error {
	if ref.kind == kindBundle {
		return c.open(ref, heard)
	}
	return c.read(ctx, ref, heard)
}

// open reads a bundle.
func (c *compilation) open(ref reference, heard uint64) error {
	root, err := bundle.ParseDigest(ref.name)
	if err != nil {
		return err
	}
	v := value{reading: reading{version: heard}}
	if c.layers.bundles != nil {
		b, err := c.layers.bundles.Open(root)
		switch {
		case err == nil:
			v.there, c.bundle = true, &b
		case !reason.Is(err, reason.BundleMissing):
			return err
		}
	}
	c.values[ref] = v
	return nil
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

// layer compiles. The errors are those of Lasting, and InternalFault.
func (c *compilation) layer(id revisionID, is content) (*Layer, error) {
	items, err := c.items(id, is)
	var layer *Layer
	if err == nil {
		layer = NewLayer(items)
		err = c.add(layer, items, is)
	}
	if err != nil {
		e := *reason.Of(err)
		e.Doing = "compile revision " + id.revision + " of " + is.of + ": " + e.Doing
		return nil, &e
	}
	if before := c.layers.shelf.latest(id.config); before != nil {
		if err := layer.share(before); err != nil {
			return nil, err
		}
	}
	for _, k := range c.keys {
		layer.Keys = append(layer.Keys, k)
	}
	slices.SortFunc(layer.Keys, func(a, b KeyUse) int { return strings.Compare(a.ID, b.ID) })
	return layer, nil
}

func (c *compilation) items(id revisionID, is content) ([]catalog.Item, error) {
	if is.template == nil {
		return catalog.CompileWith(is.resources, c.content)
	}
	item, err := c.template(id, is.template)
	return []catalog.Item{item}, err
}

// add puts the bundle into the layer, if the revision names one.
func (c *compilation) add(layer *Layer, items []catalog.Item, is content) error {
	if is.bundle == nil {
		return nil
	}
	if c.bundle == nil {
		return &reason.Error{Code: reason.BundleMissing, Doing: "read bundle " + is.bundle.Digest, Hint: "put it there: tako bundle push DIR"}
	}
	for i := range items {
		_, both, err := c.bundle.Trie.Get(items[i].Row().Key)
		if err != nil {
			return err
		}
		if both {
			return &reason.Error{Code: reason.DuplicateClaim, Doing: "add bundle " + is.bundle.Digest,
				Cause: fmt.Errorf("%s is claimed by %s and by an entry of the bundle", items[i].Claim, placeOf(is.resources, items[i].Claim)), Hint: "remove one of them"}
		}
	}
	return layer.with(c.bundle)
}

// placeOf says which resource has a claim.
func placeOf(resources []declare.Resource, claim string) string {
	for i := range resources {
		if resources[i].Claim().String() == claim {
			return declare.ResourcePath(i) + " (" + resources[i].Title() + ")"
		}
	}
	return "a resource"
}

// content is what a file takes from elsewhere.
func (c *compilation) content(r *declare.Resource) (catalog.Content, error) {
	ref, key := c.pick(sourceOf(r))
	v, data, err := c.find("the content of "+r.Title(), ref, key)
	switch {
	case err != nil:
		return catalog.Content{}, err
	case ref.kind == kindConfigMap:
		return catalog.Content{Text: string(data)}, nil
	}
	return catalog.Content{Sealed: c.seal(v.uid, ref, key, data)}, nil
}

// find is a value of an object; what is taken from there, for people. The error is LayerReference.
func (c *compilation) find(what string, ref reference, key string) (value, []byte, error) {
	v := c.values[ref]
	data, has := v.data[key]
	why := ""
	switch {
	case !v.there:
		why = "there is no such " + ref.kind
	case !has:
		why = "it has no such key"
	case len(data) > declare.BodyBytesMax:
		why = fmt.Sprintf("it is longer than %d bytes", declare.BodyBytesMax)
	case ref.kind == kindConfigMap && !utf8.Valid(data):
		why = "it is no UTF-8 text"
	default:
		return v, data, nil
	}
	return v, nil, unusable(what, ref, key, why)
}

func unusable(what string, ref reference, key, why string) error {
	return &reason.Error{Code: reason.LayerReference, Doing: fmt.Sprintf("take %s from key %s of %s %s/%s", what, key, ref.kind, ref.namespace, ref.name), Cause: errors.New(why)}
}
