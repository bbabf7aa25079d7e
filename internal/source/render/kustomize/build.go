package kustomize

import (
	"fmt"
	"slices"
	"strings"

	"sigs.k8s.io/kustomize/api/konfig"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/resmap"
	"sigs.k8s.io/kustomize/api/resource"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/yaml"

	"tako.dev/tako/declare"
)

// build makes the objects of one kustomization. It must run where nothing else can be reached: see Serve.
func build(files map[string][]byte, root string) (built Built) {
	defer func() {
		if r := recover(); r != nil {
			built = Built{Failure: fmt.Sprintf("the library of kustomize has a fault: %v", r)}
		}
	}()
	fsys := newMemory(files)
	wanted, err := withOrigins(fsys, root)
	if err != nil {
		return Built{Failure: oneLine(err.Error())}
	}
	if err := teach(); err != nil {
		return Built{Failure: oneLine(err.Error())}
	}
	m, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(fsys, clean(root))
	if err != nil {
		return Built{Failure: words(err)}
	}
	if built.Objects, err = objects(m, root, wanted); err != nil {
		return Built{Failure: oneLine(err.Error())}
	}
	return built
}

// words are the library's for what is wrong: its last ones, because those before say which function called which.
func words(err error) string {
	text := oneLine(strings.ReplaceAll(err.Error(), "'/", "'"))
	return strings.TrimPrefix(text, "accumulating resources: ")
}

// withOrigins has the library say of each object where it stems from, and tells whether the kustomization wants to keep that.
func withOrigins(m *memory, root string) (wanted bool, err error) {
	for _, base := range konfig.RecognizedKustomizationFileNames() {
		name := clean(join(root, base))
		data, ok := m.files[name]
		if !ok {
			continue
		}
		var k types.Kustomization
		if err := k.Unmarshal(data); err != nil {
			return false, err
		}
		wanted = slices.Contains(k.BuildMetadata, types.OriginAnnotations)
		document, err := yaml.Parse(string(data))
		if err != nil {
			return false, err
		}
		list := yaml.NewListRNode(k.BuildMetadata...)
		if !wanted {
			list = yaml.NewListRNode(append(k.BuildMetadata, types.OriginAnnotations)...)
		}
		if err := document.PipeE(yaml.SetField("buildMetadata", list)); err != nil {
			return false, err
		}
		text, err := document.String()
		m.files[name] = []byte(text)
		return wanted, err
	}
	return false, nil
}

// objects turns the library's objects into ours.
func objects(m resmap.ResMap, root string, keepOrigins bool) ([]Object, error) {
	list := make([]Object, 0, m.Size())
	for _, r := range m.Resources() {
		origin, err := r.GetOrigin()
		if err != nil {
			return nil, err
		}
		if !keepOrigins && origin != nil {
			if err := withoutOrigin(r); err != nil {
				return nil, err
			}
		}
		o := Object{Numbers: numbers(r.YNode(), "", nil)}
		if r.GetApiVersion() != declare.APIVersion {
			o.Numbers = nil
		}
		switch {
		case origin == nil:
		case origin.Path != "":
			o.File = join(root, origin.Path)
		case origin.ConfiguredIn != "":
			o.File, o.Generator = join(root, origin.ConfiguredIn), fieldOf(origin.ConfiguredBy.Kind)
		}
		// Not as JSON, which knows no octal digits and no order of keys.
		text, err := r.RNode.String()
		if err != nil {
			return nil, err
		}
		o.Text = []byte(text)
		list = append(list, o)
	}
	return list, nil
}

// withoutOrigin takes the annotation away, and an empty map of annotations with it.
func withoutOrigin(r *resource.Resource) error {
	if err := r.SetOrigin(nil); err != nil {
		return err
	}
	if len(r.GetAnnotations()) > 0 {
		return nil
	}
	return r.PipeE(yaml.Lookup("metadata"), yaml.Clear("annotations"))
}

// fieldOf is the field of a kustomization for one of the library's generators: ConfigMapGenerator stands there as
// configMapGenerator.
func fieldOf(kind string) string {
	if kind == "" {
		return ""
	}
	return strings.ToLower(kind[:1]) + kind[1:]
}

// numbers finds the modes that are decimal numbers.
func numbers(n *yaml.Node, at string, found []string) []string {
	switch n.Kind {
	case yaml.DocumentNode:
		for _, child := range n.Content {
			found = numbers(child, at, found)
		}
	case yaml.SequenceNode:
		for i, child := range n.Content {
			found = numbers(child, fmt.Sprintf("%s[%d]", at, i), found)
		}
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			key, value := n.Content[i].Value, n.Content[i+1]
			name := strings.TrimPrefix(at+"."+key, ".")
			if key == "mode" && value.Kind == yaml.ScalarNode && value.Style == 0 && value.Value != "" && value.Value[0] != '0' {
				found = append(found, name)
			}
			found = numbers(value, name, found)
		}
	}
	return found
}
