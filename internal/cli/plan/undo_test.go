package plan

import "testing"

func TestShellWord(t *testing.T) {
	for text, want := range map[string]string{"tako:ann@example.org": "tako:ann@example.org", "tako:Ann B": "'tako:Ann B'", "a'$(b)": `'a'\''$(b)'`, "a;b": "'a;b'"} {
		if got := shellWord(text); got != want {
			t.Errorf("%q is written as %s, want %s", text, got, want)
		}
	}
}
