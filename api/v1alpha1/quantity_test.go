package v1alpha1

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
	"pgregory.net/rapid"

	"tako.dev/tako/declare"
)

// amounts draws texts that are quantities, and some that nearly are.
func amounts() *rapid.Generator[string] {
	return rapid.Custom(func(t *rapid.T) string {
		number := rapid.SampledFrom([]string{`[0-9]{1,6}`, `[0-9]{0,6}\.[0-9]{0,6}`, `0{1,3}[0-9]{1,3}`, `[0-9]{1,12}`, `[0-9.]{1,4}`}).Draw(t, "form")
		suffix := rapid.SampledFrom([]string{"", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei", "e3", "E-3", "e+2", "e0", "e-12", "K", "ki", "i", "mi", "e", "B", " ", "x", "e3i", "Mim", "e1.5"}).Draw(t, "suffix")
		return rapid.SampledFrom([]string{"", "", "", "-", "+", "--"}).Draw(t, "sign") + rapid.StringMatching(number).Draw(t, "number") + suffix
	})
}

// TestQuantity compares what an amount means here and in Kubernetes. The differences are meant:
//
//   - The empty text is nothing here, and a mistake there: a field that is left out is one. A point without digits is a mistake here.
//   - What fits no int64 is a mistake here. There it becomes the largest number, which nobody has declared.
//   - What is negative is only taken or refused alike. The original makes 1 of -.1n, and -2882303760 of -1Pi; no field takes any of it.
//   - A text has 64 bytes at most, and an exponent two digits.
func TestQuantity(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := amounts().Draw(t, "text")
		q := declare.Quantity(text)
		value, err := q.Value()
		want, wantErr := resource.ParseQuantity(text)
		if wantErr != nil {
			if text != "" && err == nil {
				t.Fatalf("%q is %d, and the original refuses it: %v", text, value, wantErr)
			}
			return
		}
		if err != nil {
			number := strings.TrimSuffix(text, strings.TrimLeft(text, "+-.0123456789"))
			if strings.ContainsAny(number, "0123456789") && want.CmpInt64(1<<62) < 0 && want.CmpInt64(-1<<62) > 0 {
				t.Fatalf("%q is refused: %v, and to the original it is %s", text, err, want.String())
			}
			return
		}
		if text[0] == '-' {
			if value > 0 {
				t.Fatalf("%q is %d", text, value)
			}
			return
		}
		if value != want.Value() {
			t.Fatalf("%q is %d, and to the original %d", text, value, want.Value())
		}
		const safe = 1 << 53 // thousandths of what is larger fit no int64
		if milli, err := q.Milli(); value > -safe && value < safe && (err != nil || milli != want.MilliValue()) {
			t.Fatalf("%q is %d thousandths (%v), and to the original %d", text, milli, err, want.MilliValue())
		}
	})
}

// TestQuantityRefused are texts that only one of the two takes.
func TestQuantityRefused(t *testing.T) {
	for _, text := range []string{"9223372036854775808", "16Ei", "9e18k", "1e100", "1e003", strings.Repeat("0", 70)} {
		if n, err := declare.Quantity(text).Value(); err == nil {
			t.Errorf("%q is %d", text, n)
		}
	}
	if n, err := declare.Quantity("").Value(); n != 0 || err != nil {
		t.Errorf("nothing is %d, %v", n, err)
	}
	for text, want := range map[declare.Quantity]int64{"9223372036854775807": 1<<63 - 1, "7Ei": 7 << 60, "0.0000000001": 1, "1.5Ki": 1536, "-1.5": -2} {
		if n, err := text.Value(); n != want || err != nil {
			t.Errorf("%q is %d, %v, want %d", text, n, err, want)
		}
	}
}
