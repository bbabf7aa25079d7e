package examples

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/catalog"
)

// TestLifeOfAChange computes what docs/life-of-a-change.md says is the same on every machine, and wants to read it there.
func TestLifeOfAChange(t *testing.T) {
	text, err := os.ReadFile("../docs/life-of-a-change.md")
	if err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile("hello/hello.yaml")
	if err != nil {
		t.Fatal(err)
	}
	after := bytes.Replace(before, []byte("This host is kept"), []byte("This machine is kept"), 1)
	_, rootBefore, _ := layerOf(t, before)
	revision, root, size := layerOf(t, after)
	const priority = 100 // of a NodeConfig that does not say one
	list, err := catalog.List{{Priority: priority, ID: "NodeConfig/default/hello", Root: root}}.Encode()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{revision, root.String(), rootBefore.String(), catalog.ListRoot(list).String(), fmt.Sprintf("bytes: %d", size)} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the page does not have %s", want)
		}
	}
}

// layerOf compiles a file of one config: the name of its revision, its root, and the size of all bodies.
func layerOf(t *testing.T, text []byte) (revision string, root catalog.Digest, size int) {
	t.Helper()
	read, faults := declare.Read("hello.yaml", text)
	if len(faults) > 0 || len(read) != 1 {
		t.Fatalf("%d documents: %v", len(read), declare.Faults(faults))
	}
	resources := read[0].Config.Spec.Resources
	digest, err := catalog.RevisionDigest(resources)
	if err != nil {
		t.Fatal(err)
	}
	items, err := catalog.Compile(resources)
	if err != nil {
		t.Fatal(err)
	}
	for i := range items {
		size += len(items[i].Body)
	}
	return catalog.RevisionName(read[0].Config.Metadata.Name, digest), catalog.TrieOf(items).Root(), size
}
