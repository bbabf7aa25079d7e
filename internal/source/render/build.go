package render

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/cli/documents"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/source/render/kustomize"
)

// build builds the kustomizations of which anything has changed, all in one child, and returns what is known of each.
func (p *pass) build(ctx context.Context) (map[string]*unit, error) {
	known, todo, keys := map[string]*unit{}, []string{}, map[string]string{}
	for _, f := range p.found {
		if !f.build {
			continue
		}
		tree, faults := kustomize.Collect(p.view, []string{f.name}, p.limits())
		switch key, err := p.treeKey(f.name, tree); {
		case len(faults) > 0:
			p.fault(faults...)
		case tree.IsComponent(f.name):
			if f.name == p.request.Path {
				p.fault(declare.Fault{Code: reason.KustomizationFailed, File: tree.KustomizationOf(f.name), Line: 1, Column: 1, Message: "a component makes nothing alone",
					Hint: "name the path of a kustomization that includes it"})
			}
		case err != nil:
			p.fault(kustomize.Unread(f.name, err))
		default:
			if known[f.name] = p.takeOver(key); known[f.name] == nil {
				todo, keys[f.name] = append(todo, f.name), key
			}
		}
	}
	if len(todo) == 0 {
		return known, nil
	}
	// Once more, all together: bases that several of them share are sent to the child once.
	tree, faults := kustomize.Collect(p.view, todo, p.limits())
	if faults = append(faults, tree.Load(p.view)...); len(faults) == 0 {
		faults = p.inflated(tree)
	}
	if len(faults) > 0 {
		p.fault(faults...)
		return known, nil
	}
	built, err := p.runBuilder(ctx, tree)
	if err != nil {
		return known, err
	}
	for i, b := range built {
		p.result.Read++
		if u := p.unitOf(tree, todo[i], b); u != nil {
			known[todo[i]] = u
			p.result.units[keys[todo[i]]] = u
		}
	}
	return known, nil
}

func (p *pass) limits() kustomize.Limits {
	l := p.renderer.limits
	return kustomize.Limits{Files: l.Entries, FileBytes: l.FileBytes, TreeBytes: l.TreeBytes, Objects: l.Documents}
}

// treeKey names everything that a kustomization is made of.
func (p *pass) treeKey(root string, tree *kustomize.Tree) (string, error) {
	h := sha256.New()
	for _, name := range tree.Names() {
		id, _, err := p.identity(name)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(h, "%q %q\n", name, id)
	}
	return root + "/\x00" + hex.EncodeToString(h.Sum(nil)), nil
}

func (p *pass) inflated(tree *kustomize.Tree) []declare.Fault {
	var faults []declare.Fault
	for _, name := range tree.Names() {
		if !documents.IsDocument(baseOf(name)) {
			continue // the content of a generator
		}
		if fault := inflated(name, tree.Files[name]); fault != nil {
			faults = append(faults, *fault)
		}
	}
	return faults
}

func baseOf(name string) string { return name[strings.LastIndexByte(name, '/')+1:] }

// runBuilder turns what is wrong with a tree into a fault, and leaves the rest an error.
func (p *pass) runBuilder(ctx context.Context, tree *kustomize.Tree) ([]kustomize.Built, error) {
	if p.renderer.builder == nil {
		p.fault(declare.Fault{Code: reason.KustomizationFailed, File: tree.KustomizationOf(tree.Roots[0]), Line: 1, Column: 1, Message: "kustomizations are not built here"})
		return nil, nil
	}
	built, err := p.renderer.builder.Build(ctx, tree)
	if reason.Is(err, reason.RenderLimit) {
		p.fault(declare.Fault{Code: reason.RenderLimit, File: tree.KustomizationOf(tree.Roots[0]), Line: 1, Column: 1,
			Message: fmt.Sprintf("building %d kustomizations: %v", len(tree.Roots), reason.Of(err).Cause), Hint: "look for bases, replacements or patches that copy one another"})
		return nil, nil
	}
	return built, err
}

// unitOf reads the objects of a kustomization. It is nil after a mistake.
func (p *pass) unitOf(tree *kustomize.Tree, root string, b kustomize.Built) *unit {
	if b.Failure != "" {
		p.fault(declare.Fault{Code: reason.KustomizationFailed, File: tree.KustomizationOf(root), Line: 1, Column: 1, Message: b.Failure,
			Hint: "`kustomize build` on the same directory says the same"})
		return nil
	}
	o := origins{tree: tree, outlines: map[string][]documents.Document{}}
	u, before := &unit{}, len(p.faults)
	for _, object := range b.Objects {
		origin := o.of(root, object)
		list, faults := documents.ReadBuilt(object.Text, origin)
		for _, path := range object.Numbers {
			faults = append(faults, origin.Locate([]declare.Fault{{Code: reason.WrongType, Path: path, Message: "the library of kustomize has made a number of a mode",
				Hint: `write octal digits in quotes: "0644"`}})...)
		}
		p.fault(faults...)
		u.documents = append(u.documents, list...)
		u.bytes += int64(len(object.Text))
	}
	if len(p.faults) > before {
		return nil
	}
	return u
}

// origins finds the documents that objects stem from.
type origins struct {
	tree     *kustomize.Tree
	outlines map[string][]documents.Document
}

// of finds the document that an object was made of: in the file that the library names, that of its kind whose name is the
// longest part of its name, because prefixes and suffixes make names longer; of an object that a patch renamed, only the file is
// known. What a generator made stems from that field of the kustomization.
func (o *origins) of(root string, object kustomize.Object) *documents.Document {
	if object.File == "" {
		return documents.At(o.tree.KustomizationOf(root), 1)
	}
	if object.Generator != "" {
		line, _ := o.tree.PlaceOf(object.File, object.Generator)
		return documents.At(object.File, line)
	}
	list, ok := o.outlines[object.File]
	if !ok {
		list, _ = documents.Outline(object.File, o.tree.Files[object.File])
		o.outlines[object.File] = list
	}
	made, _ := documents.Outline(object.File, object.Text)
	if len(made) != 1 {
		return documents.At(object.File, 1)
	}
	var best *documents.Document
	for i := range list {
		d := &list[i]
		name := d.Object.GetName()
		if d.Kind().GroupKind() == made[0].Kind().GroupKind() && strings.Contains(made[0].Object.GetName(), name) && (best == nil || len(name) > len(best.Object.GetName())) {
			best = d
		}
	}
	if best == nil && len(list) == 1 {
		best = &list[0]
	}
	if best == nil {
		return documents.At(object.File, 1)
	}
	return best
}
