package spectest

import (
	"encoding/hex"
	"testing"
)

// TestRFC8949: examples of RFC 8949, appendix A, and what is no core deterministic encoding.
func TestRFC8949(t *testing.T) {
	for digits, want := range map[string]string{
		"00": "0", "17": "23", "1818": "24", "1903e8": "1000", "1a000f4240": "1000000", "1b000000e8d4a51000": "1000000000000", "1bffffffffffffffff": "18446744073709551615",
		"20": "-1", "3903e7": "-1000", "f4": "false", "f5": "true", "f6": "null", "4401020304": "h'01020304'", "6449455446": `"IETF"`, "80": "[]", "83010203": "[1, 2, 3]",
		"8301820203820405": "[1, [2, 3], [4, 5]]", "a201020304": "{1: 2, 3: 4}", "a26161016162820203": `{"a": 1, "b": [2, 3]}`,
	} {
		data, err := hex.DecodeString(digits)
		if err != nil {
			t.Fatal(err)
		}
		v, err := Decode(data)
		if err != nil || v.String() != want {
			t.Errorf("%s is %s, %v, want %s", digits, v, err, want)
		}
		if again := hex.EncodeToString(v.Encode()); again != digits {
			t.Errorf("%s is written as %s", digits, again)
		}
	}
	for _, digits := range []string{
		"", "1800", "190017", "1a0000ffff", "1b00000000ffffffff", "f7", "f90000", "c100", "5f42010243030405ff", "9f01ff", "a203040102", "a201020102", "61ff", "44010203", "830102", "0000",
		"818181818181818181818181818181818181818100",
	} {
		data, err := hex.DecodeString(digits)
		if err != nil {
			t.Fatal(err)
		}
		if v, err := Decode(data); err == nil {
			t.Errorf("%s is read as %s", digits, v)
		}
	}
}
