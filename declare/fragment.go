package declare

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"tako.dev/tako/internal/reason"
)

// fragmentOrderMax bounds an order, on either side of 0: people number pieces by tens.
const fragmentOrderMax = 9999

// Fragment is a piece of a file that is made of pieces, of this config and of others.
//
// +k8s:deepcopy-gen=true
// +k8s:openapi-gen=true
// +k8s:openapi-model-package=dev.tako.declare
type Fragment struct {
	// Path is the file, which a resource declares with fragments: true.
	Path string `json:"path"`
	// Order says where in the file the piece stands, -9999 to 9999: smaller comes first, and of one order in that of the names. Default 0.
	Order int `json:"order,omitempty"`
	// Content is the piece, UTF-8. Where it does not end with a line, the end of the line is added.
	Content string `json:"content,omitempty"`
	// ContentFrom takes the piece from a ConfigMap instead. Alone, without a server, a host has no such pieces.
	ContentFrom *ContentSource `json:"contentFrom,omitempty"`
}

func (f *Fragment) claim(name string) Claim { return Claim{ClaimFragment, f.Path + "#" + name} }

func (f *Fragment) claimField() string { return "fragment.path" }

func (f *Fragment) texts() []expandableText {
	return []expandableText{{"fragment.content", &f.Content}}
}

func (f *Fragment) source() *ContentSource { return f.ContentFrom }

func (f *Fragment) fill(text string, from *ContentSource) (body, error) {
	out := *f
	out.Content, out.ContentFrom = text, from
	return &out, nil
}

// autoEdges puts a piece before its file, so that what it waits for comes first.
func (f *Fragment) autoEdges(Claim) []AutoEdge {
	return []AutoEdge{{Other: Claim{ClaimPath, f.Path}, Before: true, Why: "piece of a file"}}
}

func (f *Fragment) validate(v *validator) {
	v.fsPath("fragment.path", f.Path)
	if f.Order < -fragmentOrderMax || f.Order > fragmentOrderMax {
		v.invalid(v.path("fragment.order"), fmt.Sprintf("order %d is outside -%d to %d", f.Order, fragmentOrderMax, fragmentOrderMax), "")
	}
	if n := len(f.claim(v.resource.Name).String()); n > ClaimBytesMax && len(f.Path) < PathBytesMax {
		v.invalid(v.path("name"), fmt.Sprintf("the path and the name have %d bytes together, at most %d are allowed", n, ClaimBytesMax), "")
	}
	v.pieceSource(f.ContentFrom, f.Content != "")
	if v.firstFragment() {
		v.wholes()
	}
}

// pieceSource checks where a piece comes from. What the host itself has to get would be a part of the file that is not known when the
// pieces are put together, and a Secret would make all of the file private.
func (v *validator) pieceSource(from *ContentSource, own bool) {
	const field = "fragment.contentFrom"
	refused := false
	if from != nil {
		for _, other := range []struct {
			name string
			set  bool
		}{{"secret", from.Secret != nil}, {"object", from.Object != nil}, {"path", from.Path != ""}} {
			if other.set {
				v.fault(v.path(field+"."+other.name), reason.FieldNotAllowed, "a piece of a file comes from a ConfigMap or is its own", "give it a file of its own, which most programs can include")
				refused = true
			}
		}
	}
	if !refused {
		v.contentSource(field, from, own)
	}
}

// firstFragment reports whether no resource before this one is a fragment.
func (v *validator) firstFragment() bool {
	for i := v.index - 1; i >= 0; i-- {
		if v.config.Spec.Resources[i].Fragment != nil {
			return false
		}
	}
	return true
}

// wholes refuses fragments of what the config declares as a whole.
func (v *validator) wholes() {
	all := v.config.Spec.Resources
	wholes := map[string]int{}
	for i := range all {
		if claim := all[i].Claim(); claim.Kind == ClaimPath && (all[i].File == nil || !all[i].File.Fragments) {
			wholes[claim.ID] = i
		}
	}
	for i := range all {
		if all[i].Fragment == nil {
			continue
		}
		if other, ok := wholes[all[i].Fragment.Path]; ok {
			f := v.fault(ResourcePath(i)+".fragment.path", reason.DuplicateClaim, fmt.Sprintf("%s is declared as a whole by %s", clipText(all[i].Fragment.Path), all[other].Title()),
				"say there that the file is made of pieces: `fragments: true`")
			f.Related = []Place{{Path: ResourcePath(other) + "." + all[other].claimField(), Note: "declared here"}}
		}
	}
}

// Piece is a fragment and what it claims.
type Piece struct {
	Claim    Claim
	Fragment *Fragment
}

// Assembled returns the file with its pieces behind its own content. It sorts them.
func (f *File) Assembled(pieces []Piece) *File {
	slices.SortFunc(pieces, func(a, b Piece) int {
		return cmp.Or(cmp.Compare(a.Fragment.Order, b.Fragment.Order), cmp.Compare(a.Claim.ID, b.Claim.ID))
	})
	var text strings.Builder
	add := func(s string) {
		text.WriteString(s)
		if s != "" && !strings.HasSuffix(s, "\n") {
			text.WriteByte('\n')
		}
	}
	add(f.Content)
	for _, p := range pieces {
		add(p.Fragment.Content)
	}
	out := *f
	out.Content = text.String()
	return &out
}

// fragments checks what does not go with a file of pieces.
func (v *validator) fragments(f *File) {
	switch {
	case !f.Fragments:
	case f.ContentFrom != nil:
		v.fault(v.path("file.contentFrom"), reason.FieldNotAllowed, "contentFrom with fragments: true", "what stands before the pieces is `content`; make a fragment of each of the others")
	case !f.Replaces():
		v.fault(v.path("file.replace"), reason.FieldNotAllowed, "replace: false with fragments: true", "leave it out, or use `edit` for parts of a file that others change")
	}
}
