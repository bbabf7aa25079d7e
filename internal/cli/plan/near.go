package plan

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/cli/remote"
	"tako.dev/tako/internal/cli/schema"
	"tako.dev/tako/internal/reason"
)

// items are the places of a path in a list or map.
var items = regexp.MustCompile(`\[[^\]]*\]`)

// suggest adds to unknown fields which ones there are, or which was meant. Without the server's description of the kind the faults
// stay as they are: it is no reason to hide them.
func suggest(ctx context.Context, server *remote.Server, kind remote.Kind, faults []declare.Fault) {
	var document *schema.Document
	for i := range faults {
		f := &faults[i]
		if f.Code != reason.UnknownField || f.Path == "" {
			continue
		}
		if document == nil {
			text, err := server.Description(ctx, kind.GroupVersion())
			if err != nil {
				return
			}
			if document, err = schema.Parse(text); err != nil {
				return
			}
		}
		_, known, err := document.Explain(kind.GroupVersionKind, strings.Split(items.ReplaceAllString(f.Path, ""), "."))
		var none *schema.NoField
		if !known || !errors.As(err, &none) || len(none.Fields) == 0 {
			continue
		}
		f.Hint = "fields here: " + strings.Join(none.Fields, ", ")
		if near := remote.Near(none.Name, none.Fields); near != "" {
			f.Hint = fmt.Sprintf("did you mean %q?", near)
		}
	}
}
