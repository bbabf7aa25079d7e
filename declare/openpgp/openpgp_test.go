package openpgp

import (
	"encoding/base64"
	"errors"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// gpg runs gpg with a home of the test.
func gpg(t *testing.T, home, input string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "gpg", append([]string{"--batch", "--no-tty", "--homedir", home, "--pinentry-mode", "loopback", "--passphrase", ""}, args...)...)
	cmd.Stdin = strings.NewReader(input)
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("gpg %v: %v\n%s", args, err, said.String())
	}
	return string(out)
}

// TestParseReal reads what gpg writes.
func TestParseReal(t *testing.T) {
	for _, tool := range []string{"gpg", "gpg-agent"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skip("needs " + tool)
		}
	}
	home, err := os.MkdirTemp("", "openpgp") // a short path, for the agent's socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = exec.Command("gpgconf", "--homedir", home, "--kill", "all").Run() // it may not run
		if err := os.RemoveAll(home); err != nil {
			t.Error(err)
		}
	})
	for name, kind := range map[string]string{"a": "ed25519", "b": "rsa2048", "c": "nistp256"} {
		gpg(t, home, "", "--quick-generate-key", name+"@example.com", kind, "default", "never")
	}
	var want, blocks []string
	for _, name := range []string{"a", "b", "c"} {
		for line := range strings.Lines(gpg(t, home, "", "--with-colons", "--list-keys", name+"@example.com")) {
			if f := strings.Split(line, ":"); f[0] == "fpr" {
				want = append(want, f[9])
				break
			}
		}
		blocks = append(blocks, gpg(t, home, "", "--armor", "--export", name+"@example.com"))
	}
	for name, text := range map[string]string{
		"blocks": strings.Join(blocks, "\n"), "one block": gpg(t, home, "", "--armor", "--export", "a@example.com") + blocks[1] + blocks[2],
		"CRLF": strings.ReplaceAll(strings.Join(blocks, ""), "\n", "\r\n"), "comments": strings.ReplaceAll(strings.Join(blocks, ""), begin+"\n", begin+"\nComment: x\nVersion: 1\n"),
	} {
		keys, err := Parse(text)
		if err != nil || !slices.Equal(keys.Fingerprints, want) {
			t.Fatalf("%s: %v, %v; want %v", name, keys.Fingerprints, err, want)
		}
		if again, err := ParseBinary(keys.Binary); err != nil || !slices.Equal(again.Fingerprints, want) {
			t.Errorf("%s: without armor: %v, %v", name, again.Fingerprints, err)
		}
		// gpg takes the binary form for the same.
		shown := gpg(t, home, string(keys.Binary), "--with-colons", "--show-keys")
		for _, fingerprint := range want {
			if !strings.Contains(shown, fingerprint) {
				t.Errorf("%s: %s is not in the keyring:\n%s", name, fingerprint, shown)
			}
		}
	}
	all := gpg(t, home, "", "--armor", "--export")
	if keys, err := Parse(all); err != nil || len(keys.Fingerprints) != len(want) {
		t.Errorf("all in one block: %v, %v", keys.Fingerprints, err)
	}
	private := gpg(t, home, "", "--armor", "--export-secret-keys", "a@example.com")
	public := strings.ReplaceAll(private, "PRIVATE", "PUBLIC") // a private key under a false name
	signature := strings.ReplaceAll(gpg(t, home, "x", "--armor", "--detach-sign"), "PGP SIGNATURE", "PGP PUBLIC KEY BLOCK")
	for _, c := range []struct {
		name, text string
		want       error
	}{
		{"private", private, ErrPrivate}, {"private under a false name", public, ErrPrivate}, {"public and private", blocks[0] + private, ErrPrivate},
		{"signature", signature, errNotKey}, {"flipped", flip(t, blocks[0]), errChecksum}, {"cut", blocks[0][:len(blocks[0])/2], errNoEnd},
		{"text before", "key:\n" + blocks[0], errBetween}, {"text after", blocks[0] + "x", errBetween}, {"binary", string([]byte{0x99, 1}), errNoArmor}, {"empty", " \n", errEmpty},
	} {
		if _, err := Parse(c.text); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
}

// flip changes one letter of the base64.
func flip(t *testing.T, text string) string {
	t.Helper()
	at := strings.Index(text, "\n\n") + 20
	other := byte('A')
	if text[at] == other {
		other = 'B'
	}
	return text[:at] + string(other) + text[at+1:]
}

func armored(b []byte) string {
	crc := crc24(b)
	return begin + "\n\n" + base64.StdEncoding.EncodeToString(b) + "\n=" + base64.StdEncoding.EncodeToString([]byte{byte(crc >> 16), byte(crc >> 8), byte(crc)}) + "\n" + end + "\n"
}

// key4 is a public key packet in the newer form.
var key4 = []byte{0xc6, 6, 4, 0, 0, 0, 0, 1}

func TestParsePackets(t *testing.T) {
	join := func(parts ...[]byte) []byte { return slices.Concat(parts...) }
	for _, c := range []struct {
		name string
		b    []byte
		want error
	}{
		{"newer form", key4, nil}, {"older form, one byte", []byte{0x98, 6, 4, 0, 0, 0, 0, 1}, nil}, {"older form, two bytes", []byte{0x99, 0, 6, 4, 0, 0, 0, 0, 1}, nil},
		{"older form, four bytes", []byte{0x9a, 0, 0, 0, 6, 4, 0, 0, 0, 0, 1}, nil}, {"older form, to the end", []byte{0x9b, 4, 0, 0, 0, 0, 1}, errPartial},
		{"five bytes", []byte{0xc6, 255, 0, 0, 0, 6, 4, 0, 0, 0, 0, 1}, nil}, {"two bytes", join([]byte{0xc6, 192, 8, 4}, make([]byte, 199)), nil},
		{"partial", []byte{0xc6, 0xe1, 4, 0, 0xc6}, errPartial}, {"a length that is too long", []byte{0xc6, 255, 255, 255, 255, 255, 4}, errCut}, {"no length", []byte{0xc6}, errCut},
		{"half a length", []byte{0xc6, 192}, errCut}, {"half of five", []byte{0xc6, 255, 0}, errCut}, {"half an older length", []byte{0x99, 0}, errCut},
		{"no packet", []byte{0x06, 1, 1}, errPacket}, {"version 6", []byte{0xc6, 6, 6, 0, 0, 0, 0, 1}, nil}, {"version 3", []byte{0xc6, 6, 3, 0, 0, 0, 0, 1}, errOld}, {"short", []byte{0xc6, 1, 4}, errCut},
		{"marker first", join([]byte{0xca, 3, 'P', 'G', 'P'}, key4), nil}, {"marker alone", []byte{0xca, 3, 'P', 'G', 'P'}, errNoPackets}, {"user ID first", join([]byte{0xcd, 1, 'x'}, key4), errNotKey},
		{"literal data", join(key4, []byte{0xcb, 1, 'x'}), errPacket}, {"secret subkey", join(key4, []byte{0xc7, 1, 4}), ErrPrivate}, {"user ID", join(key4, []byte{0xcd, 1, 'x'}), nil},
	} {
		if _, err := Parse(armored(c.b)); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
	good := armored(key4)
	for name, c := range map[string]struct {
		text string
		want error
	}{
		"no checksum":     {begin + "\n\n" + base64.StdEncoding.EncodeToString(key4) + "\n" + end, nil},
		"no empty line":   {strings.Replace(good, "\n\n", "\n", 1), errHeader},
		"no base64":       {strings.Replace(good, "xgY", "x!Y", 1), errBase64},
		"after the sum":   {strings.Replace(good, end, "xxxx\n"+end, 1), errBase64},
		"a short sum":     {begin + "\n\n" + base64.StdEncoding.EncodeToString(key4) + "\n=AA==\n" + end, errBase64},
		"nothing in it":   {begin + "\n\n" + end, errNoPackets},
		"all in one line": {begin + end, errHeader},
		"too long":        {strings.Repeat("x", TextBytesMax+1), errLong},
	} {
		if _, err := Parse(c.text); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}

// TestParseModel makes texts of random packets, wrapped and cut into blocks at random.
func TestParseModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var text, all string
		n := 0
		for range rapid.IntRange(1, 3).Draw(t, "blocks") {
			var b []byte
			for range rapid.IntRange(1, 3).Draw(t, "keys") {
				n++
				body := append([]byte{4}, rapid.SliceOfN(rapid.Byte(), 5, 300).Draw(t, "body")...)
				b = append(append(b, 0x99, byte(len(body)>>8), byte(len(body))), body...)
				for range rapid.IntRange(0, 3).Draw(t, "others") {
					other := rapid.SliceOfN(rapid.Byte(), 0, 100).Draw(t, "other")
					b = append(append(b, 0xc0|rapid.SampledFrom([]byte{tagSignature, tagUserID, tagPublicSubkey, tagUserAttribute}).Draw(t, "tag"), byte(len(other))), other...)
				}
			}
			all += string(b)
			text += armored(b)
		}
		keys, err := Parse(text)
		if err != nil || string(keys.Binary) != all || len(keys.Fingerprints) != n {
			t.Fatalf("%v: %d of %d keys, %d of %d bytes", err, len(keys.Fingerprints), n, len(keys.Binary), len(all))
		}
	})
}

func FuzzParse(f *testing.F) {
	f.Add(armored(key4))
	f.Add(armored([]byte{0xc5, 1, 4}))
	f.Add(begin + "\nComment: x\n\n\n=\n" + end)
	f.Fuzz(func(t *testing.T, text string) {
		if keys, err := ParseBinary([]byte(text)); err == nil && len(keys.Fingerprints) == 0 {
			t.Errorf("%q has no key", text)
		}
		keys, err := Parse(text)
		if err == nil && (len(keys.Fingerprints) == 0 || len(keys.Binary) == 0 || strings.Contains(text, "PRIVATE KEY")) {
			t.Errorf("%q: %v", text, keys)
		}
		if err != nil && len(err.Error()) > 200 {
			t.Errorf("a long error: %v", err)
		}
	})
}
