package body

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

func TestEscapesBody(t *testing.T) {
	for _, c := range []struct {
		text string
		at   int // of what is half of a character; -1 for none
	}{
		{`"plain"`, -1}, {`"\u00e9"`, -1}, {`"\ud83d\ude00"`, -1}, {`"\uD83D\uDE00x"`, -1}, {`"\\ud800"`, -1}, {`"\n\ud83d\ude00\n"`, -1}, {`"\\\\ud800"`, -1},
		{`"\ud800"`, 1}, {`"ab\ud800c"`, 3}, {`"\udc00"`, 1}, {`"\udc00\ud800"`, 1}, {`"\ud800\n"`, 1}, {`"\ud800\ud800"`, 1}, {`"\ud800\u0041"`, 1}, {`"\\\ud800"`, 3},
		{`{"a":"\ud83d\ude00","b":"\ud83d"}`, 25}, {`"\ud8zz"`, -1}, {`"\ud8`, -1},
	} {
		for size := 1; size <= len(c.text); size++ {
			_, err := io.ReadAll(&escapesBody{ReadCloser: io.NopCloser(&pieces{[]byte(c.text), size})})
			if c.at < 0 && err != nil || c.at >= 0 && (!apierrors.IsBadRequest(err) || !strings.Contains(err.Error(), fmt.Sprintf("at byte %d,", c.at))) {
				t.Fatalf("%s in pieces of %d: %v, want %d", c.text, size, err, c.at)
			}
		}
	}
}

// FuzzEscapesBody: of what is a JSON text, that is refused which a decoder would put another character into.
func FuzzEscapesBody(f *testing.F) {
	for _, s := range []string{`\ud800`, `\ud83d\ude00`, `a\\ud800`, `\udc00`, `\ud800\ud83d\ude00`, `\u0041`, `\n\ud800\u00`} {
		f.Add(s, uint8(1))
		f.Add(s, uint8(5))
	}
	f.Fuzz(func(t *testing.T, inner string, piece uint8) {
		text, value := `"`+inner+`"`, ""
		if strings.Contains(inner, "\uFFFD") || strings.Contains(strings.ToLower(inner), "fffd") || json.Unmarshal([]byte(text), &value) != nil {
			return
		}
		if strings.ToValidUTF8(inner, "") != inner {
			return
		}
		_, err := io.ReadAll(&escapesBody{ReadCloser: io.NopCloser(&pieces{[]byte(text), int(piece%8) + 1})})
		if replaced := strings.Contains(value, "\uFFFD"); (err != nil) != replaced {
			t.Fatalf("%s is %q: %v", text, value, err)
		}
	})
}
