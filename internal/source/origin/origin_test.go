package origin

import "testing"

// TestOrigin: what is written into the annotation is what is read, and what is no origin is none.
func TestOrigin(t *testing.T) {
	from := Origin{File: "a b/\"c\".yaml", Line: 3, Commit: "0123", Author: "Ann <ann@example.com>", Digest: "ff"}
	if got := Of(map[string]string{Annotation: from.String()}); got != from {
		t.Errorf("%+v, want %+v", got, from)
	}
	for _, text := range []string{"", "x", "[]", `{"line": "three"}`} {
		if got := Of(map[string]string{Annotation: text}); got != (Origin{}) {
			t.Errorf("%q is %+v", text, got)
		}
	}
}

// TestDigest: the order of fields does not matter, their values do.
func TestDigest(t *testing.T) {
	digest := func(fields map[string]any) string {
		t.Helper()
		d, err := Digest(fields)
		if err != nil || len(d) != 16 {
			t.Fatalf("%q, %v", d, err)
		}
		return d
	}
	one := digest(map[string]any{"a": int64(1), "b": []any{"x"}})
	if again := digest(map[string]any{"b": []any{"x"}, "a": int64(1)}); again != one {
		t.Errorf("%s and %s", one, again)
	}
	if other := digest(map[string]any{"a": int64(2), "b": []any{"x"}}); other == one {
		t.Error("another value has the same digest")
	}
	if _, err := Digest(map[string]any{"a": func() {}}); err == nil {
		t.Error("what cannot be written has a digest")
	}
}

// TestUser: a source is one user, in the groups of all sources and of its namespace's.
func TestUser(t *testing.T) {
	user, groups := User("prod", "fleet")
	if user != "system:source:prod:fleet" || len(groups) != 3 || groups[1] != "system:sources:prod" {
		t.Errorf("%s, %v", user, groups)
	}
}
