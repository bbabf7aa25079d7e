package catalog

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"tako.dev/tako/declare"
)

var updateDigests = flag.Bool("update-revisions", false, "write the digests of testdata/revision anew; every fleet then sees a change of everything")

// The digests in testdata must not move: a server that computes another one after an upgrade makes a new revision of every
// config, and rolls it out.
func TestRevisionDigestStays(t *testing.T) {
	files, err := filepath.Glob("testdata/revision/*.yaml")
	if err != nil || len(files) < 3 {
		t.Fatalf("%d files in testdata/revision (%v)", len(files), err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			docs, faults := declare.Read(file, text)
			if len(faults) > 0 || len(docs) != 1 {
				t.Fatalf("%d documents, faults %v", len(docs), faults)
			}
			d, err := RevisionDigestWith(docs[0].Config.Spec.Resources, docs[0].Config.Spec.Bundle)
			if err != nil {
				t.Fatal(err)
			}
			got := d.String() + "\n" + RevisionName(docs[0].Config.Metadata.Name, d) + "\n"
			golden := strings.TrimSuffix(file, ".yaml") + ".digest"
			if *updateDigests {
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil || got != string(want) {
				t.Errorf("got\n%swant\n%s(%v)", got, want, err)
			}
		})
	}
}

func TestRevisionDigestIsOfWhatIsDeclared(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		resources := make([]declare.Resource, rapid.IntRange(1, 5).Draw(t, "n"))
		for i := range resources {
			resources[i] = anyEntry(t).Resource
			resources[i].Name = string(rune('a' + i))
			resources[i].Require = rapid.SliceOfNDistinct(rapid.StringMatching(`[a-z]{1,3}`), 0, 3, rapid.ID).Draw(t, "require")
		}
		digest := mustDigest(t, resources)

		moved := slices.Clone(resources)
		slices.Reverse(moved)
		for i := range moved {
			moved[i].Require = slices.Clone(moved[i].Require)
			slices.Reverse(moved[i].Require)
		}
		if mustDigest(t, moved) != digest {
			t.Fatal("the order changed the digest")
		}
		changed := slices.Clone(resources)
		i := rapid.IntRange(0, len(changed)-1).Draw(t, "changed")
		changed[i].OnRemove = declare.OnRemoveDelete
		if mustDigest(t, changed) == digest {
			t.Fatal("another onRemove left the digest as it was")
		}
		if mustDigest(t, resources[1:]) == digest {
			t.Fatal("a missing resource left the digest as it was")
		}
	})
}

func TestRevisionDigestLeavesItsArgument(t *testing.T) {
	resources := []declare.Resource{{Name: "b", Require: []string{"z", "a"}}, {Name: "a"}}
	mustDigest(t, resources)
	if resources[0].Name != "b" || resources[0].Require[0] != "z" {
		t.Errorf("the caller's resources are changed: %+v", resources)
	}
	if mustDigest(t, nil) != mustDigest(t, []declare.Resource{}) {
		t.Error("no resources and an empty list of them are two revisions")
	}
}

func mustDigest(t interface{ Fatal(...any) }, resources []declare.Resource) Digest {
	d, err := RevisionDigest(resources)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestRevisionName(t *testing.T) {
	d := Digest{0xab, 0xcd, 0xef, 0x01, 0x23, 0x45}
	if got := RevisionName("web", d); got != "web-abcdef0123" {
		t.Errorf("name %s", got)
	}
	if longest := strings.Repeat("x", declare.NameBytesMax-11); RevisionName(longest, d) != longest+"-abcdef0123" {
		t.Error("a name that fits is cut")
	}
	rapid.Check(t, func(t *rapid.T) {
		label := rapid.StringMatching(`[a-z0-9]([a-z0-9-]{0,8}[a-z0-9])?`)
		start := strings.Join(rapid.SliceOfN(label, 60, 60).Draw(t, "labels"), ".")
		start = strings.TrimRight(start[:min(len(start), declare.NameBytesMax-1)], "-.")
		a, b := RevisionName(start+"a", d), RevisionName(start+"b", d)
		if a == b {
			t.Fatalf("two owners share %s", a)
		}
		// The reader is the judge of what a name may be.
		text := "apiVersion: tako.dev/v1alpha1\nkind: NodeConfig\nmetadata: {name: " + a + "}\nspec:\n  resources:\n  - {name: a, file: {path: /a}}\n"
		docs, faults := declare.Read("a.yaml", []byte(text))
		if len(faults) == 0 {
			faults = docs[0].Validate()
		}
		if len(faults) > 0 {
			t.Fatalf("%q (%d bytes) is no name: %v", a, len(a), faults)
		}
	})
}
