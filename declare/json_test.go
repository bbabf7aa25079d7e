package declare

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"tako.dev/tako/internal/reason"
)

func TestModeAndIntOrPercentJSON(t *testing.T) {
	for _, c := range []struct {
		text, want string
		refused    bool
	}{
		{text: `"0644"`, want: "0644"},
		{text: `"\u0031"`, want: "1"},
		{text: `""`},
		{text: `null`}, // as any field of an API object: as if it were left out
		{text: `420`, refused: true},
		{text: `-1`, refused: true},
		{text: `1.5`, refused: true},
		{text: `true`, refused: true},
		{text: `["1"]`, refused: true},
		{text: `{}`, refused: true},
	} {
		var file File
		err := json.Unmarshal([]byte(`{"path": "/a", "mode": `+c.text+`}`), &file)
		if string(file.Mode) != c.want || (err != nil) != c.refused || err != nil && !reason.Is(err, reason.WrongType) {
			t.Errorf("mode %s is read as %q, %v", c.text, file.Mode, err)
		}
		var rollout Rollout
		err = json.Unmarshal([]byte(`{"maxUnavailable": `+c.text+`}`), &rollout)
		if string(rollout.MaxUnavailable) != c.want || (err != nil) != c.refused || err != nil && !reason.Is(err, reason.WrongType) {
			t.Errorf("maxUnavailable %s is read as %q, %v", c.text, rollout.MaxUnavailable, err)
		}
	}
}

func TestWrongJSONQuotesNoText(t *testing.T) {
	var file File
	if err := json.Unmarshal([]byte(`{"path": "/a", "mode": {"content": "hunter2"}}`), &file); err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("got %v", err)
	}
	if err := json.Unmarshal([]byte(`{"path": "/a", "mode": 420}`), &file); err == nil || !strings.Contains(err.Error(), "mode 420") || !strings.Contains(err.Error(), "in quotes") {
		t.Errorf("got %v", err)
	}
}

// FuzzScalarJSON checks that a value which JSON and the reader of files both take is the same to both, and that but for numbers
// they take the same.
func FuzzScalarJSON(f *testing.F) {
	for _, s := range []string{`"0644"`, `"10%"`, `""`, "3", "-3", "0", "420", "1.5", "true", "[]", "{}", "1e2", `"a b"`, "-0"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		const digitsMax = 18 // to the YAML parser, a longer number and one like 1e2 is a text
		if !json.Valid([]byte(text)) || text == "null" || strings.TrimSpace(text) != text || strings.Contains(text, "\\") || text[0] != '"' && (len(text) > digitsMax || strings.ContainsAny(text, "eE")) {
			t.Skip("not one value in a form that both know")
		}
		for i := range len(text) {
			if text[i] < ' ' || text[i] > '~' {
				t.Skip("what characters a file may hold is another question")
			}
		}
		compareScalar(t, text, fmt.Sprintf(`{"rollout": {"maxUnavailable": %s}, "resources": []}`, text))
		compareScalar(t, text, fmt.Sprintf(`{"resources": [{"name": "a", "file": {"path": "/a", "mode": %s}}]}`, text))
	})
}

// compareScalar reads a spec as JSON and as a file.
func compareScalar(t *testing.T, text, spec string) {
	var fromJSON NodeConfigSpec
	err := json.Unmarshal([]byte(spec), &fromJSON)
	documents, faults := Read("f", fmt.Appendf(nil, `{"apiVersion": %q, "kind": "NodeConfig", "metadata": {"name": "a"}, "spec": %s}`, APIVersion, spec))
	if strings.Trim(text, "-0123456789") == "" {
		if err == nil {
			t.Fatalf("JSON takes %s", text)
		}
		return
	}
	if (err == nil) != (len(faults) == 0) {
		t.Fatalf("%s: JSON says %v, the reader of files %v", text, err, faults)
	}
	if err != nil {
		return
	}
	a, _ := json.Marshal(fromJSON)
	b, _ := json.Marshal(documents[0].Config.Spec)
	if string(a) != string(b) {
		t.Fatalf("%s is %s from JSON, %s from a file", text, a, b)
	}
}
