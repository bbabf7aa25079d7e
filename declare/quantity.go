package declare

import (
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"strings"
)

// Quantity is an amount, written as in Kubernetes: a decimal number with an optional sign, followed by nothing, by one of n, u, m, k, M, G,
// T, P, E (powers of 1000), by one of Ki, Mi, Gi, Ti, Pi, Ei (powers of 1024), or by an exponent of ten such as e3. In YAML it may stand as a
// number. The empty quantity is zero.
type Quantity string

// quantityBytesMax bounds the text, and so the number of digits that are looked at.
const quantityBytesMax = 64

// quantitySuffixes are the powers that a suffix stands for: of ten, or of two.
var quantitySuffixes = map[string]struct{ base, exponent int64 }{
	"n": {10, -9}, "u": {10, -6}, "m": {10, -3}, "": {10, 0}, "k": {10, 3}, "M": {10, 6}, "G": {10, 9}, "T": {10, 12}, "P": {10, 15}, "E": {10, 18},
	"Ki": {2, 10}, "Mi": {2, 20}, "Gi": {2, 30}, "Ti": {2, 40}, "Pi": {2, 50}, "Ei": {2, 60},
}

// Value returns the amount in whole units, rounded away from zero: bytes, or pieces. The error says what is wrong with the text; an amount that does not
// fit an int64 is one.
func (q Quantity) Value() (int64, error) { return q.scaled(1) }

// Milli returns the amount in thousandths, rounded away from zero: of a processor, say.
func (q Quantity) Milli() (int64, error) { return q.scaled(1000) }

func (q Quantity) scaled(by int64) (int64, error) {
	r, err := q.rat()
	if err != nil {
		return 0, err
	}
	r.Mul(r, new(big.Rat).SetInt64(by))
	n, rest := new(big.Int).QuoRem(r.Num(), r.Denom(), new(big.Int))
	n.Add(n, big.NewInt(int64(rest.Sign())))
	if !n.IsInt64() || n.Int64() == math.MinInt64 {
		return 0, fmt.Errorf("%q is too large", clipText(string(q)))
	}
	return n.Int64(), nil
}

func (q Quantity) rat() (*big.Rat, error) {
	text := string(q)
	if text == "" {
		return new(big.Rat), nil
	}
	malformed := fmt.Errorf("%q is no quantity", clipText(text))
	if len(text) > quantityBytesMax {
		return nil, malformed
	}
	digits := strings.TrimLeft(text, "+-")
	if len(text)-len(digits) > 1 {
		return nil, malformed
	}
	end := strings.IndexFunc(digits, func(r rune) bool { return (r < '0' || r > '9') && r != '.' })
	if end < 0 {
		end = len(digits)
	}
	number, suffix := digits[:end], digits[end:]
	if strings.Trim(number, ".") == "" || strings.Count(number, ".") > 1 {
		return nil, malformed
	}
	r, ok := new(big.Rat).SetString(number)
	if !ok {
		return nil, malformed
	}
	scale, ok := quantitySuffixes[suffix]
	if !ok {
		if scale, ok = exponent(suffix); !ok {
			return nil, malformed
		}
	}
	power := new(big.Rat).SetInt(new(big.Int).Exp(big.NewInt(scale.base), big.NewInt(max(scale.exponent, -scale.exponent)), nil))
	if scale.exponent < 0 {
		power.Inv(power)
	}
	r.Mul(r, power)
	if text[0] == '-' {
		r.Neg(r)
	}
	return r, nil
}

// exponent reads e3, E-3 and the like. Two digits are more than any amount needs.
func exponent(suffix string) (scale struct{ base, exponent int64 }, ok bool) {
	if len(suffix) < 2 || suffix[0] != 'e' && suffix[0] != 'E' {
		return scale, false
	}
	digits := strings.TrimLeft(suffix[1:], "+-")
	if digits == "" || len(digits) > 2 || len(suffix)-1-len(digits) > 1 || strings.Trim(digits, "0123456789") != "" {
		return scale, false
	}
	scale.base = 10
	for _, d := range digits {
		scale.exponent = scale.exponent*10 + int64(d-'0')
	}
	if suffix[1] == '-' {
		scale.exponent = -scale.exponent
	}
	return scale, true
}

// UnmarshalJSON reads a text. It refuses a number, which the reader of files takes, as IntOrPercent does.
func (q *Quantity) UnmarshalJSON(b []byte) error {
	if isTextOrNull(b) {
		return json.Unmarshal(b, (*string)(q))
	}
	return wrongJSON("quantity", b, `write an amount in quotes: "2", "500m" or "512Mi"`)
}
