package content

import (
	"testing"
)

func FuzzParseDigest(f *testing.F) {
	for _, s := range []string{
		DigestOf(nil).String(), "sha256:", "", "sha256:zz", "md5:00",
		"sha256:E3B0C44298FC1C149AFBF4C8996FB92427AE41E4649B934CA495991B7852B855",
		"sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b85",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		d, err := ParseDigest(s)
		if err != nil {
			if !d.IsZero() {
				t.Fatalf("%q: %v with an error", s, d)
			}
			return
		}
		if d.String() != s {
			t.Fatalf("%q is read as %v", s, d)
		}
		var again Digest
		if b, err := d.MarshalText(); err != nil || again.UnmarshalText(b) != nil || again != d {
			t.Fatalf("%v does not survive its text", d)
		}
	})
}

func TestParseDigestRefuses(t *testing.T) {
	good := DigestOf([]byte("x")).String()
	if _, err := ParseDigest(good); err != nil {
		t.Fatal(err)
	}
	for _, s := range []string{"", good[7:], good[:70], good + "0", "sha512" + good[6:], "sha256:" + "G" + good[8:]} {
		if _, err := ParseDigest(s); err == nil {
			t.Errorf("%q is taken", s)
		}
	}
}
