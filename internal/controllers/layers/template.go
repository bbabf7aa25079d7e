package layers

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/declare"
	"tako.dev/tako/declare/workload"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/reason"
)

// templateOf is what a revision of a workload declares.
func templateOf(r *v1alpha1.Revision) content {
	is := content{template: r.Spec.Template.DeepCopy(), of: "a workload in " + r.Namespace}
	if s := r.Spec.Source; s != nil {
		is.of = "workload " + r.Namespace + "/" + s.Name
	}
	return is
}

// checkTemplate says whether the name of a revision stands for its template.
func checkTemplate(doing string, id revisionID, t *workload.Template) error {
	if t == nil {
		return &reason.Error{Code: reason.RevisionUnusable, Doing: doing, Cause: errors.New("it is not of a workload")}
	}
	at := strings.LastIndex(id.revision, "-")
	if is, _ := catalog.TemplateOf(id.config); is.Revision != id.revision || at < 0 || !workload.IsHash(t, id.revision[at+1:]) {
		return &reason.Error{Code: reason.RevisionUnusable, Doing: doing, Cause: fmt.Errorf("what it holds, as this version reads it, has a name that ends with %s", workload.Hash(t, 0)),
			Hint: "delete the revision, it is made again; or bring the server up to date, if a later version has written it"}
	}
	return nil
}

// selected is where a task takes a value from; false where it stands in the template itself.
func (c *compilation) selected(secret, configMap *declare.KeySelector) (ref reference, key string, ok bool) {
	switch {
	case secret != nil:
		return reference{kindSecret, c.namespace, secret.Name}, secret.Key, true
	case configMap != nil:
		return reference{kindConfigMap, c.namespace, configMap.Name}, configMap.Key, true
	}
	return reference{}, "", false
}

func (c *compilation) ofVariable(e *workload.EnvVar) (reference, string, bool) {
	if e.ValueFrom == nil {
		return reference{}, "", false
	}
	return c.selected(e.ValueFrom.Secret, e.ValueFrom.ConfigMap)
}

func (c *compilation) ofFile(f *workload.File) (reference, string, bool) {
	return c.selected(f.Secret, f.ConfigMap)
}

func (c *compilation) templateReferences(t *workload.Template) []reference {
	var refs []reference
	add := func(ref reference, _ string, ok bool) {
		if ok && !slices.Contains(refs, ref) {
			refs = append(refs, ref)
		}
	}
	for i := range t.Tasks {
		for j := range t.Tasks[i].Env {
			add(c.ofVariable(&t.Tasks[i].Env[j]))
		}
		for j := range t.Tasks[i].Files {
			add(c.ofFile(&t.Tasks[i].Files[j]))
		}
	}
	return refs
}

// template is the one item of the layer of a workload's revision: with the values that its tasks take from ConfigMaps in the places of the references,
// and those from Secrets sealed beside. The errors are LayerReference, BodyTooLarge and InternalFault.
func (c *compilation) template(id revisionID, t *workload.Template) (catalog.Item, error) {
	made := catalog.Template{Namespace: c.namespace, Revision: id.revision, Spec: *t}
	for i := range t.Tasks {
		task := &t.Tasks[i]
		if err := c.environment(&made, task); err != nil {
			return catalog.Item{}, err
		}
		for j := range task.Files {
			f := &task.Files[j]
			ref, key, ok := c.ofFile(f)
			if !ok {
				continue
			}
			v, data, err := c.find(fmt.Sprintf("file %s of task %s", f.Path, task.Name), ref, key)
			if err != nil {
				return catalog.Item{}, err
			}
			if ref.kind == kindConfigMap {
				f.Content, f.ConfigMap = string(data), nil
			} else {
				made.Secrets = append(made.Secrets, catalog.TemplateSecret{Task: task.Name, File: f.Path, Sealed: *c.seal(v.uid, ref, key, data)})
			}
		}
	}
	return made.Item()
}

// environment fills in the variables of a task. What is taken from elsewhere is as it is there: a $( in it refers to nothing.
func (c *compilation) environment(made *catalog.Template, task *workload.Task) error {
	size := 0
	for i := range task.Env {
		e := &task.Env[i]
		ref, key, ok := c.ofVariable(e)
		if !ok {
			size += len(e.Name) + len(e.Value)
			continue
		}
		what := fmt.Sprintf("variable %s of task %s", e.Name, task.Name)
		v, data, err := c.find(what, ref, key)
		switch size += len(e.Name) + len(data); {
		case err != nil:
			return err
		case bytes.IndexByte(data, 0) >= 0:
			return unusable(what, ref, key, "it holds a NUL byte, which no variable can have")
		case size > workload.EnvBytesMax:
			return unusable(what, ref, key, fmt.Sprintf("with it the variables of the task have %d bytes, at most %d are allowed", size, workload.EnvBytesMax))
		}
		if ref.kind == kindConfigMap {
			e.Value, e.ValueFrom = workload.EscapeEnv(string(data)), nil
		} else {
			made.Secrets = append(made.Secrets, catalog.TemplateSecret{Task: task.Name, Env: e.Name, Sealed: *c.seal(v.uid, ref, key, data)})
		}
	}
	return nil
}
