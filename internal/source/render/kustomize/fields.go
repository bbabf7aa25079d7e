package kustomize

import (
	"regexp"
	"strings"

	"sigs.k8s.io/kustomize/api/types"
)

// reference is a path in a kustomization with the place where it stands.
type reference struct {
	field string // of the kustomization
	index int    // in that field; -1 where it is no list
	path  string
	want  target
}

type target uint8

const (
	wantFile target = iota
	wantDir
	wantEither
)

// references lists every path that the library would open for a kustomization. TestEveryField holds it against the library's
// type.
func references(k *types.Kustomization) []reference {
	var list []reference
	add := func(field string, index int, want target, paths ...string) {
		for _, p := range paths {
			list = append(list, reference{field, index, p, want})
		}
	}
	each := func(field string, want target, paths []string) {
		for i, p := range paths {
			add(field, i, want, p)
		}
	}
	each("resources", wantEither, k.Resources)
	//lint:ignore SA1019 the library still opens what old kustomizations name here
	each("bases", wantEither, k.Bases)
	each("components", wantDir, k.Components)
	each("crds", wantFile, k.Crds)
	each("configurations", wantFile, k.Configurations)
	if p, ok := k.OpenAPI["path"]; ok {
		add("openapi", -1, wantFile, p)
	}
	//lint:ignore SA1019 as above
	for i, p := range k.PatchesStrategicMerge {
		if !isInline(string(p)) {
			add("patchesStrategicMerge", i, wantFile, string(p))
		}
	}
	//lint:ignore SA1019 as above
	for field, patches := range map[string][]types.Patch{"patches": k.Patches, "patchesJson6902": k.PatchesJson6902} {
		for i, p := range patches {
			if p.Path != "" {
				add(field, i, wantFile, p.Path)
			}
		}
	}
	for i, r := range k.Replacements {
		if r.Path != "" {
			add("replacements", i, wantFile, r.Path)
		}
	}
	for i := range k.ConfigMapGenerator {
		add("configMapGenerator", i, wantFile, sources(&k.ConfigMapGenerator[i].KvPairSources)...)
	}
	for i := range k.SecretGenerator {
		add("secretGenerator", i, wantFile, sources(&k.SecretGenerator[i].KvPairSources)...)
	}
	return list
}

// sources lists the files of a generator. A file may stand behind the key that it gets: key=path.
func sources(s *types.KvPairSources) []string {
	var list []string
	for _, f := range s.FileSources {
		if _, path, ok := strings.Cut(f, "="); ok {
			f = path
		}
		list = append(list, f)
	}
	list = append(list, s.EnvSources...)
	if s.EnvSource != "" {
		list = append(list, s.EnvSource)
	}
	return list
}

// isInline tells whether a strategic merge patch stands in the kustomization itself. A text of one line that the library could
// take for an address is none, whatever it is meant to be.
func isInline(patch string) bool {
	return strings.Contains(patch, "\n") || !isRemote(patch) && (strings.HasPrefix(strings.TrimSpace(patch), "{") || strings.Contains(patch, ": "))
}

// programs lists the fields that are used and that run programs, with what is meant by each.
func programs(k *types.Kustomization) []string {
	var used []string
	for _, f := range []struct {
		name string
		used bool
	}{
		{"generators", len(k.Generators) > 0},
		{"transformers", len(k.Transformers) > 0},
		{"validators", len(k.Validators) > 0},
		{"helmCharts", len(k.HelmCharts) > 0},
		{"helmGlobals", k.HelmGlobals != nil},
		{"helmChartInflationGenerator", len(k.HelmChartInflationGenerator) > 0},
	} {
		if f.used {
			used = append(used, f.name)
		}
	}
	return used
}

// address matches what begins like one: a scheme, a user, or the host that the library knows without either.
var address = regexp.MustCompile(`(?i)^([a-z][a-z0-9+.-]*:|[a-z][a-z0-9-]*@|github\.com/)`)

// isRemote tells whether the library could take a path for something to fetch.
func isRemote(path string) bool { return address.MatchString(path) }
