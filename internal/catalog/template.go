package catalog

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"tako.dev/tako/declare"
	"tako.dev/tako/declare/workload"
	"tako.dev/tako/internal/reason"
)

// Template is what a revision of a workload runs: all that is in the layer of that revision, which every node with an instance of it has.
type Template struct {
	Namespace string // of the workload
	Revision  string // name of the revision
	Spec      workload.Template
	Secrets   []TemplateSecret // by task, then place
	// Unsupported says why this host cannot run it: it is of a later version. Spec and Secrets are empty then.
	Unsupported *reason.Error
}

// TemplateSecret is a value of a Secret that a task of a template takes. In Spec the place says still where it is from.
type TemplateSecret struct {
	Task   string `json:"t"`
	Env    string `json:"e,omitempty"` // the variable that it is the value of
	File   string `json:"f,omitempty"` // the path of the file that it is the content of; one of the two is set
	Sealed Sealed `json:"s"`
}

func (s *TemplateSecret) compare(other *TemplateSecret) int {
	return cmp.Or(cmp.Compare(s.Task, other.Task), cmp.Compare(s.Env, other.Env), cmp.Compare(s.File, other.File))
}

// templatePrefix begins the IDs of layers that hold a template, templateClaim the claim of what is in one, and templateSchema is the form of the bodies
// that Item writes; see schemaOf.
const (
	templatePrefix = "Revision/"
	templateClaim  = "template:"
	templateSchema = 1
	// TemplatePriority is that of layers with templates. They claim nothing that others do.
	TemplatePriority = 0
)

// TemplateLayer is the ID of the layer of a workload's revision.
func TemplateLayer(namespace, revision string) string {
	return templatePrefix + namespace + "/" + revision
}

// TemplateOf is the template that the layer with that ID is to have; false for the ID of another layer.
func TemplateOf(id string) (Template, bool) {
	rest, ok := strings.CutPrefix(id, templatePrefix)
	namespace, revision, cut := strings.Cut(rest, "/")
	ok = ok && cut && namespace != "" && revision != "" && !strings.Contains(revision, "/")
	return Template{Namespace: namespace, Revision: revision}, ok
}

// templateBody is the form of a body. The template is bytes in it, so that how deep it may be is its own affair. What is named like a field of
// layerBody has the form of that: a host that knows no templates takes it for a resource of a later version.
type templateBody struct {
	Schema  uint             `json:"v"`
	Claim   string           `json:"c"`
	Spec    []byte           `json:"t"`
	Secrets []TemplateSecret `json:"x,omitempty"`
}

// Claim is what stands in the layer, as text.
func (t *Template) Claim() string { return templateClaim + t.Namespace + "/" + t.Revision }

// Key is where the template stands in its layer.
func (t *Template) Key() Digest { return KeyOf(t.Claim()) }

// Item is the one item of the template's layer. The errors are BodyTooLarge, InvalidValue for a secret that no task takes, or two for one place, and
// InternalFault.
func (t Template) Item() (Item, error) {
	doing := "encode template " + t.Namespace + "/" + t.Revision
	t.Secrets = slices.SortedFunc(slices.Values(t.Secrets), func(a, b TemplateSecret) int { return a.compare(&b) })
	if err := t.check(); err != nil {
		return Item{}, &reason.Error{Code: reason.InvalidValue, Doing: doing, Cause: err}
	}
	b := templateBody{Schema: templateSchema, Claim: t.Claim(), Secrets: t.Secrets}
	var data []byte
	var err error
	if b.Spec, err = encoding.Marshal(t.Spec); err == nil {
		data, err = encoding.Marshal(b)
	}
	switch {
	case err != nil:
		return Item{}, &reason.Error{Code: reason.InternalFault, Doing: doing, Cause: err}
	case len(data) > declare.BodyBytesMax:
		return Item{}, &reason.Error{Code: reason.BodyTooLarge, Doing: doing, Cause: fmt.Errorf("%d bytes with the values that it takes, the limit is %d", len(data), declare.BodyBytesMax)}
	}
	return Item{Claim: b.Claim, Body: data}, nil
}

// DecodeTemplate reads the body that stands at the Key of the template of a layer. The errors are BodyTooLarge and StateCorrupt: a template that this
// version does not know enough to run is no error.
func DecodeTemplate(id string, data []byte) (Template, error) {
	doing := "decode " + id
	if len(data) > declare.BodyBytesMax {
		return Template{}, &reason.Error{Code: reason.BodyTooLarge, Doing: doing}
	}
	t, ok := TemplateOf(id)
	later, err := t.decode(data)
	if !ok {
		err = errors.New("it is no layer with a template")
	}
	if err != nil {
		return Template{}, &reason.Error{Code: reason.StateCorrupt, Doing: doing, Cause: err}
	}
	if later != nil {
		t.Spec, t.Secrets = workload.Template{}, nil
		t.Unsupported = &reason.Error{Code: reason.LaterVersion, Doing: "read what instances of revision " + t.Namespace + "/" + t.Revision + " run", Cause: later, Hint: "bring tako-agent on this host up to date"}
	}
	return t, nil
}

// decode reads a body. later says what of it this version does not know. What its schema and claim are is known of all versions; the rest only of
// those up to this one.
func (t *Template) decode(data []byte) (later, err error) {
	var which struct {
		Schema uint   `json:"v"`
		Claim  string `json:"c"`
	}
	err = lenient.Unmarshal(data, &which)
	switch {
	case err != nil:
		return nil, err
	case which.Claim != t.Claim():
		return nil, fmt.Errorf("it is about %.64q", which.Claim)
	case which.Schema > templateSchema:
		return fmt.Errorf("it is of schema %d, and this version knows %d", which.Schema, templateSchema), nil
	}
	var b templateBody
	if err = lenient.Unmarshal(data, &b); err == nil {
		err = lenient.Unmarshal(b.Spec, &t.Spec)
	}
	if err != nil {
		return nil, err
	}
	t.Secrets = b.Secrets
	later = errors.Join(decoding.Unmarshal(data, &templateBody{}), decoding.Unmarshal(b.Spec, &workload.Template{}))
	if later == nil {
		err = t.check()
	}
	return later, err
}

// check says whether the secrets are in order, and each belongs to a place of the template that takes one.
func (t *Template) check() error {
	for i := range t.Secrets {
		s := &t.Secrets[i]
		if i > 0 && t.Secrets[i-1].compare(s) >= 0 {
			return fmt.Errorf("the secrets of task %.64q are not in order", s.Task)
		}
		if (s.Env == "") == (s.File == "") || !slices.ContainsFunc(t.Spec.Tasks, s.isOf) {
			return fmt.Errorf("task %.64q takes no secret where one is given", s.Task)
		}
	}
	return nil
}

// isOf tells whether a task takes the secret where it is given.
func (s *TemplateSecret) isOf(task workload.Task) bool {
	return task.Name == s.Task && (slices.ContainsFunc(task.Env, func(e workload.EnvVar) bool {
		return s.Env != "" && e.Name == s.Env && e.ValueFrom != nil && e.ValueFrom.Secret != nil
	}) || slices.ContainsFunc(task.Files, func(f workload.File) bool {
		return s.File != "" && f.Path == s.File && f.Secret != nil
	}))
}
