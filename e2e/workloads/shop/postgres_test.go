package main

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"strings"
	"testing"
)

// TestScram: the exchange that RFC 7677, section 3, shows.
func TestScram(t *testing.T) {
	const nonce = "rOprNGfwEbeRWgbNEkqO"
	s := scram{nonce: nonce, bare: "n=user,r=" + nonce}
	const first = "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
	answer, err := s.answer(first, "pencil")
	if want := "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="; err != nil || answer != want {
		t.Errorf("answers %q, %v, want %q", answer, err, want)
	}
	if want := "6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="; s.proof != want {
		t.Errorf("expects %q, want %q", s.proof, want)
	}
	for _, wrong := range []string{"", "r=other,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096", "r=" + nonce + ",s=W22ZaJ0SNY7soEsUEjb6gQ==,i=0", "r=" + nonce + ",s=?,i=1", "r=" + nonce + ",s=,i=99999999999"} {
		if _, err := s.answer(wrong, "pencil"); err == nil {
			t.Errorf("%q is answered", wrong)
		}
	}
}

// FuzzReceive: whatever the database sends is a message of at most messageMax bytes, or an error.
func FuzzReceive(f *testing.F) {
	f.Add([]byte("Z\x00\x00\x00\x05I"))
	f.Add([]byte("E\x00\x00\x00\x0dSERROR\x00\x00"))
	f.Add([]byte("D\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, text []byte) {
		c := conn{r: bufio.NewReader(bytes.NewReader(text))}
		kind, body, err := c.receive()
		if err == nil && (kind != text[0] || kind == 'E' || !bytes.HasPrefix(text[5:], body)) {
			t.Errorf("%q is %q with %q", text, kind, body)
		}
	})
}

// FuzzAnswer: whatever the database begins with is answered with its nonce, or not at all.
func FuzzAnswer(f *testing.F) {
	f.Add("r=abc,s=" + base64.StdEncoding.EncodeToString([]byte("salt")) + ",i=2")
	f.Fuzz(func(t *testing.T, first string) {
		if _, count, ok := strings.Cut(first, "i="); ok && len(count) > 3 {
			t.Skip() // it takes as long as it asks for
		}
		s := scram{nonce: "abc"}
		answer, err := s.answer(first, "secret")
		if err == nil && !strings.HasPrefix(answer, "c=biws,r=abc") {
			t.Errorf("%q is answered %q", first, answer)
		}
	})
}
