package observe

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

// TestJournal: the value of a secret is in no line of a log, however the journal writes it.
func TestJournal(t *testing.T) {
	const secret = `p"w\\x` + "\u00e9\n<line>"
	clean := func(text string) string { return strings.ReplaceAll(text, secret, "[secret]") }
	numbers := make([]int, 0, 64)
	for _, b := range []byte("\x1b[1mwith " + secret) {
		numbers = append(numbers, int(b))
	}
	var journal strings.Builder
	for _, message := range []any{"with " + secret, numbers, []any{"a", "with " + secret, numbers}, nil} {
		line, err := json.Marshal(map[string]any{"MESSAGE": message, "PRIORITY": "6"})
		if err != nil {
			t.Fatal(err)
		}
		journal.Write(append(line, '\n'))
	}
	journal.WriteString("no JSON, with " + strings.ReplaceAll(secret, "\n", "") + "\n")
	var out strings.Builder
	if err := Journal(&out, strings.NewReader(journal.String()), time.Time{}, clean); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	for i, want := range []string{
		`{"MESSAGE":"with [secret]","PRIORITY":"6"}`, `{"MESSAGE":"\u001b[1mwith [secret]","PRIORITY":"6"}`,
		`{"MESSAGE":["a","with [secret]","\u001b[1mwith [secret]"],"PRIORITY":"6"}`, `{"MESSAGE":null,"PRIORITY":"6"}`,
	} {
		if lines[i] != want {
			t.Errorf("line %d is %s, want %s", i, lines[i], want)
		}
	}
	var last map[string]string
	if len(lines) != 5 || json.Unmarshal([]byte(lines[4]), &last) != nil || !strings.HasPrefix(last["MESSAGE"], "no JSON") {
		t.Errorf("what is no JSON is %q", lines[4:])
	}
}

// TestJournalSince: what was logged before is left out, also in the same second.
func TestJournalSince(t *testing.T) {
	in := `{"MESSAGE":"before","__REALTIME_TIMESTAMP":"1700000000499999"}
{"MESSAGE":"at","__REALTIME_TIMESTAMP":"1700000000500000"}
{"MESSAGE":"without a time"}
`
	var out strings.Builder
	if err := Journal(&out, strings.NewReader(in), time.UnixMicro(1_700_000_000_500_000), func(text string) string { return text }); err != nil {
		t.Fatal(err)
	}
	if _, want, _ := strings.Cut(in, "\n"); out.String() != want {
		t.Errorf("%s, want %s", out.String(), want)
	}
}
