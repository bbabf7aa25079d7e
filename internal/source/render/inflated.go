package render

import (
	"bytes"
	"fmt"

	"sigs.k8s.io/kustomize/kyaml/yaml"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/reason"
)

// nodesMax bounds the values of one document after its aliases have been written out: a file of the largest size has fewer
// without any.
const nodesMax = 1 << 20

// inflated refuses a file whose aliases stand for more than fits: each decoder that comes later writes them out. What it cannot
// parse is left to those to refuse.
func inflated(file string, data []byte) *declare.Fault {
	if !bytes.ContainsRune(data, '&') || !bytes.ContainsRune(data, '*') {
		return nil
	}
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	for {
		var n yaml.Node
		if err := decoder.Decode(&n); err != nil {
			return nil
		}
		if c := (counter{memo: map[*yaml.Node]int{}}); c.count(&n) > nodesMax {
			return &declare.Fault{Code: reason.RenderLimit, File: file, Line: max(n.Line, 1), Column: max(n.Column, 1),
				Message: fmt.Sprintf("the aliases of the document stand for more than %d values", nodesMax), Hint: "write out what is meant"}
		}
	}
}

// counter counts the values of a tree as if every alias were written out.
type counter struct{ memo map[*yaml.Node]int }

func (c counter) count(n *yaml.Node) int {
	if n.Kind == yaml.AliasNode {
		if n.Alias == nil {
			return 1
		}
		n = n.Alias
	}
	if total, ok := c.memo[n]; ok {
		return total
	}
	c.memo[n] = nodesMax + 1 // for an alias within what it stands for, which has no end
	total := 1
	for _, child := range n.Content {
		total = min(total+c.count(child), nodesMax+1)
	}
	c.memo[n] = total
	return total
}
