package content

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tako.dev/tako/internal/reason"
)

func keep(t *testing.T, s *Store, path, text string) Digest {
	t.Helper()
	d, _, err := s.Keep(context.Background(), Version{Path: []byte(path), Mode: 0o640, UID: 7}, strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestVersions(t *testing.T) {
	s := open(t, t.TempDir(), 0)
	first, second, other := keep(t, s, "/a\xff", "one"), keep(t, s, "/a\xff", "two"), keep(t, s, "/b", "one")
	if first != other {
		t.Fatal("one content has two digests")
	}
	list := func(s *Store, path string, want ...Digest) {
		t.Helper()
		got, err := s.Versions(path)
		if err != nil || len(got) != len(want) {
			t.Fatalf("versions of %q: %+v, %v", path, got, err)
		}
		for i, v := range got {
			if v.Digest != want[i] || v.Mode != 0o640 || v.UID != 7 || v.At.IsZero() || v.Size != 3 {
				t.Errorf("version %d of %q is %+v", i, path, v)
			}
		}
	}
	list(s, "/a\xff", second, first)
	list(s, "", other, second, first)
	list(s, "/c")
	// A line that a power cut has torn takes no other with it.
	f, err := os.OpenFile(filepath.Join(s.dir, versionsFile), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString("\n12345678 {\"at\":"); err != nil {
		t.Fatal(err)
	}
	f.Close()
	third := keep(t, s, "/a\xff", "333")
	list(s, "/a\xff", third, second, first)
	beside, err := Beside(s.dir)
	if err != nil {
		t.Fatal(err)
	}
	list(beside, "/b", other)
	fourth := keep(t, beside, "/b", "444")
	list(s, "/b", fourth, other)
	if err := os.Remove(s.path(first)); err != nil {
		t.Fatal(err)
	}
	list(s, "/b", fourth)
	if err := s.TidyVersions(); err != nil {
		t.Fatal(err)
	}
	if all, err := s.versions(); err != nil || len(all) != 3 {
		t.Errorf("after a tidy: %+v, %v", all, err)
	}
	list(s, "/a\xff", third, second)
	list(open(t, s.dir, 0), "/b", fourth)
	if _, err := Beside(filepath.Join(s.dir, "none")); !reason.Is(err, reason.NoOldContent) {
		t.Errorf("no store: %v", err)
	}
}

func TestTidyVersionsBounds(t *testing.T) {
	s := open(t, t.TempDir(), 0)
	d := put(t, s, "text")
	var lines strings.Builder
	for i := range versionsMax + 10 {
		lines.Write(encodeVersion(Version{Path: []byte("/a"), Digest: d, Size: int64(i)}))
	}
	if err := os.WriteFile(filepath.Join(s.dir, versionsFile), []byte(lines.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := s.TidyVersions(); err != nil {
		t.Fatal(err)
	}
	if all, err := s.versions(); err != nil || len(all) != versionsMax || all[0].Size != 10 {
		t.Errorf("%d left, the oldest %+v, %v", len(all), all[0], err)
	}
}

func FuzzDecodeVersion(f *testing.F) {
	f.Add(strings.TrimSuffix(string(encodeVersion(Version{Path: []byte("/a"), Digest: DigestOf(nil)})), "\n"))
	f.Add("00000000 {}")
	f.Add("")
	f.Fuzz(func(t *testing.T, line string) {
		v, ok := decodeVersion([]byte(line))
		if again, still := decodeVersion([]byte(strings.TrimSuffix(string(encodeVersion(v)), "\n"))); ok && (!still || string(again.Path) != string(v.Path) || again.Digest != v.Digest) {
			t.Errorf("%q: %+v is read back as %+v, %v", line, v, again, still)
		}
	})
}
