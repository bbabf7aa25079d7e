package relations

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"tako.dev/tako/internal/present"
)

// web is the order of a web server's resources.
func web() *Graph {
	res := func(claim, title, outcome string) Resource {
		return Resource{Claim: claim, Title: title, Config: "NodeConfig/web", Outcome: outcome}
	}
	return &Graph{
		Version: Version, Node: "web-1", Unrelated: 3,
		Resources: []Resource{
			res("package:nginx", "package/nginx", "kept"), res("path:/etc/nginx", "directory/conf", "kept"), res("path:/etc/nginx/nginx.conf", "file/nginx.conf", "failed"),
			res("unit:nginx.service", "service/nginx", "blocked"), res("exec:web/page", "exec/page", "notApplicable"),
		},
		Edges: []Edge{
			{From: "package:nginx", To: "path:/etc/nginx", Kind: Automatic, Why: "package of a file"},
			{From: "path:/etc/nginx", To: "path:/etc/nginx/nginx.conf", Kind: Automatic, Why: "parent directory"},
			{From: "package:nginx", To: "path:/etc/nginx/nginx.conf", Kind: Automatic, Why: "package of a file"},
			{From: "path:/etc/nginx/nginx.conf", To: "unit:nginx.service", Kind: Notify},
			{From: "package:nginx", To: "unit:nginx.service", Kind: Require},
			{From: "unit:nginx.service", To: "exec:web/page", Kind: OnFailure},
			{From: "unit:nginx.service", To: "package:nginx", Kind: Automatic, Why: "x", Dropped: "it would close a cycle with package/nginx before service/nginx"},
		},
	}
}

// What is asked about stands between what it waits for and what waits for it, and each line says why.
func TestTreeAround(t *testing.T) {
	g := web()
	g.About = []string{"unit:nginx.service"}
	const want = `● service/nginx  ⊘ Blocked
  waits for
  ├─ file/nginx.conf  ✗ Failed  (notify)
  │  ├─ directory/conf  ✔ Kept  (automatic: parent directory)
  │  │  └─ package/nginx  ✔ Kept  (automatic: package of a file)
  │  └─ package/nginx  ✔ Kept  (automatic: package of a file)
  └─ package/nginx  ✔ Kept  (require)
  waited for by
  └─ exec/page  – Not applicable  (onFailure)
not kept
  service/nginx before package/nginx (automatic: x): it would close a cycle with package/nginx before service/nginx
`
	if got := g.Tree(present.Style{}); got != want {
		t.Errorf("it is\n%swant\n%s", got, want)
	}
}

// All of it begins with what waits for nothing; what stands twice has what is below it once.
func TestTreeOfAll(t *testing.T) {
	const want = `● package/nginx  ✔ Kept
├─ directory/conf  ✔ Kept  (automatic: package of a file)
│  └─ file/nginx.conf  ✗ Failed  (automatic: parent directory)
│     └─ service/nginx  ⊘ Blocked  (notify)
│        └─ exec/page  – Not applicable  (onFailure)
├─ file/nginx.conf  ✗ Failed  (automatic: package of a file; see above)
└─ service/nginx  ⊘ Blocked  (require; see above)
not kept
  service/nginx before package/nginx (automatic: x): it would close a cycle with package/nginx before service/nginx
3 resources wait for nothing, and nothing waits for them
`
	if got := web().Tree(present.Style{}); got != want {
		t.Errorf("it is\n%swant\n%s", got, want)
	}
}

// A tree has an end, however large the graph is and whatever a host sends.
func TestTreeIsBounded(t *testing.T) {
	g := &Graph{Version: Version, Omitted: 7}
	for i := range 3000 {
		g.Resources = append(g.Resources, Resource{Claim: fmt.Sprint(i), Title: fmt.Sprint("file/", i), Outcome: "kept"})
		if i > 0 {
			g.Edges = append(g.Edges, Edge{From: fmt.Sprint(i / 2), To: fmt.Sprint(i), Kind: Require})
		}
	}
	g.Edges = append(g.Edges, Edge{From: "2999", To: "0", Kind: Require}, Edge{From: "nowhere", To: "1", Kind: Require}) // a liar's
	for _, about := range [][]string{nil, {"1"}, {"2999"}, {"nowhere"}} {
		g.About = about
		got := g.Tree(present.Style{})
		if n := strings.Count(got, "\n"); n > linesMax+10 {
			t.Errorf("about %v it has %d lines", about, n)
		}
		if !strings.Contains(got, "there is more") || !strings.Contains(got, "7 resources are not listed") {
			t.Errorf("about %v it does not say that there is more:\n%.300s", about, got)
		}
	}
}

// What Graphviz is given is its language, whatever stands in titles; where it is installed it says so itself.
func TestDot(t *testing.T) {
	g := web()
	g.About = []string{"package:nginx"}
	g.Resources[1].Title = "file/a \"quoted\\\" \x1b[31m\n"
	got := g.Dot()
	for _, want := range []string{
		`"package:nginx" [label="package/nginx\n✔ Kept", peripheries=2]`, `"package:nginx" -> "unit:nginx.service" [label="require", style="solid"]`,
		`[label="automatic: x; not kept", style="dashed", color=gray, fontcolor=gray, constraint=false]`, `a \"quoted\\\" \\x1b[31m\\n`,
	} {
		if !strings.Contains(got, want) {
			t.Errorf("it lacks %s:\n%s", want, got)
		}
	}
	dot, err := exec.LookPath("dot")
	if err != nil {
		return
	}
	check := exec.Command(dot, "-Tcanon")
	check.Stdin = strings.NewReader(got)
	if out, err := check.CombinedOutput(); err != nil {
		t.Errorf("dot: %v\n%s", err, out)
	}
}

// FuzzText: what a host answers is shown as lines for a terminal, and nothing else.
func FuzzText(f *testing.F) {
	text, err := json.Marshal(web())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add([]byte(`{"about":["a"],"resources":[{"claim":"a","title":"\u001b[2J"}],"edges":[{"from":"a","to":"a","kind":"\n"}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var g Graph
		if json.Unmarshal(data, &g) != nil {
			return
		}
		for _, said := range []string{g.Tree(present.Style{}), g.Dot()} {
			if strings.ContainsFunc(said, func(r rune) bool { return r < ' ' && r != '\n' || r == 0x7f }) {
				t.Errorf("it has control characters: %q", said)
			}
		}
		if n := strings.Count(g.Tree(present.Style{}), "\n"); n > linesMax+droppedMax+3*len(g.About)+10 {
			t.Errorf("a tree of %d lines", n)
		}
	})
}
