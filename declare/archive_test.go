package declare

import (
	"slices"
	"strings"
	"testing"
)

const someDigest = "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"

func TestValidateArchive(t *testing.T) {
	source := ArchiveSource{Path: "/srv/a.tar"}
	object := ArchiveSource{Object: &ObjectReference{Digest: someDigest, SizeBytes: 4}}
	for _, c := range []struct {
		a    Archive
		want string
	}{
		{Archive{Path: "/opt/a", From: source}, ""},
		{Archive{Path: "/opt/a", From: object, Strip: 64, Owner: "www", Group: "4", Umask: "0777", SizeBytesMax: UnpackedBytesMax, Force: true}, ""},
		{Archive{From: source}, "TK0413 archive.path"},
		{Archive{Path: "/", From: source}, "TK0414 archive.path"},
		{Archive{Path: "/opt/a"}, "TK0413 archive.from"},
		{Archive{Path: "/opt/a", From: ArchiveSource{Path: "a.tar"}}, "TK0414 archive.from.path"},
		{Archive{Path: "/opt/a", From: ArchiveSource{Path: "/opt/a/a.tar"}}, "TK0414 archive.from.path"},
		{Archive{Path: "/opt/a", From: ArchiveSource{Path: "/opt/a"}}, "TK0414 archive.from.path"},
		{Archive{Path: "/opt/a", From: ArchiveSource{Path: "/opt/a.tar"}}, ""},
		{Archive{Path: "/opt/a", From: ArchiveSource{Path: "/srv/a.tar", Object: object.Object}}, "TK0415 archive.from.path"},
		{Archive{Path: "/opt/a", From: ArchiveSource{Object: &ObjectReference{}}}, "TK0413 archive.from.object.digest"},
		{Archive{Path: "/opt/a", From: ArchiveSource{Object: &ObjectReference{Digest: strings.ToUpper(someDigest)}}}, "TK0414 archive.from.object.digest"},
		{Archive{Path: "/opt/a", From: ArchiveSource{Object: &ObjectReference{Digest: someDigest[:70]}}}, "TK0414 archive.from.object.digest"},
		{Archive{Path: "/opt/a", From: ArchiveSource{Object: &ObjectReference{Digest: someDigest, SizeBytes: -1}}}, "TK0414 archive.from.object.sizeBytes"},
		{Archive{Path: "/opt/a", From: ArchiveSource{Object: &ObjectReference{Digest: someDigest, SizeBytes: ObjectBytesMax + 1}}}, "TK0414 archive.from.object.sizeBytes"},
		{Archive{Path: "/opt/a", From: source, Strip: -1}, "TK0414 archive.strip"},
		{Archive{Path: "/opt/a", From: source, Strip: 65}, "TK0414 archive.strip"},
		{Archive{Path: "/opt/a", From: source, Umask: "1000"}, "TK0414 archive.umask"},
		{Archive{Path: "/opt/a", From: source, Umask: "u=rwx"}, "TK0414 archive.umask"},
		{Archive{Path: "/opt/a", From: source, Owner: "a:b"}, "TK0414 archive.owner"},
		{Archive{Path: "/opt/a", From: source, SizeBytesMax: -1}, "TK0414 archive.sizeBytesMax"},
		{Archive{Path: "/opt/a", From: source, SizeBytesMax: UnpackedBytesMax + 1}, "TK0414 archive.sizeBytesMax"},
	} {
		got := strings.ReplaceAll(mistakes(Resource{Name: "a", Archive: &c.a}), "spec.resources[0].", "")
		if got != c.want {
			t.Errorf("%+v: %s, want %s", c.a, got, c.want)
		}
	}
}

func TestInsideArchives(t *testing.T) {
	archive := Resource{Name: "a", Archive: &Archive{Path: "/opt/a", From: ArchiveSource{Path: "/srv/a.tar"}}}
	got := summary(Validate(config(archive, Resource{Name: "in", File: &File{Path: "/opt/a/b/c"}}, Resource{Name: "beside", File: &File{Path: "/opt/ab"}},
		Resource{Name: "over", Directory: &Directory{Path: "/opt"}})))
	if got != "TK0415 spec.resources[1].file.path" {
		t.Errorf("%s", got)
	}
}

func TestValidateFileFromBytes(t *testing.T) {
	object := &ObjectReference{Digest: someDigest, SizeBytes: 4}
	key := &KeySelector{Name: "s", Key: "k"}
	for _, c := range []struct {
		from ContentSource
		want string
	}{
		{ContentSource{Object: object}, ""},
		{ContentSource{Path: "/srv/f"}, ""},
		{ContentSource{Path: "f"}, "TK0414 file.contentFrom.path"},
		{ContentSource{Path: "/f"}, "TK0414 file.contentFrom.path"},
		{ContentSource{Object: &ObjectReference{Digest: "x"}}, "TK0414 file.contentFrom.object.digest"},
		{ContentSource{Object: object, Path: "/srv/f"}, "TK0415 file.contentFrom"},
		{ContentSource{Object: object, Secret: key}, "TK0415 file.contentFrom"},
		{ContentSource{}, "TK0413 file.contentFrom"},
	} {
		got := strings.ReplaceAll(mistakes(Resource{Name: "f", File: &File{Path: "/f", ContentFrom: &c.from}}), "spec.resources[0].", "")
		if got != c.want {
			t.Errorf("%+v: %s, want %s", c.from, got, c.want)
		}
	}
	r := Resource{Name: "e", Exec: &Exec{Command: []string{"true"}, EnvironmentFrom: &ContentSource{Path: "/etc/env"}}}
	if got := mistakes(r); got != "TK0415 spec.resources[0].exec.environmentFrom.path" {
		t.Errorf("environment: %s", got)
	}
}

// What comes from an object or a file is none of a server's to put in.
func TestBytesAreNoSource(t *testing.T) {
	object := &ObjectReference{Digest: someDigest, SizeBytes: 4}
	f := Resource{Name: "f", File: &File{Path: "/f", ContentFrom: &ContentSource{Object: object}}}
	if f.Source() != nil || f.FromSecret() || !slices.Equal(f.Objects(), []*ObjectReference{object}) {
		t.Errorf("%+v, %+v", f.Source(), f.Objects())
	}
	a := Resource{Name: "a", Archive: &Archive{Path: "/opt/a", From: ArchiveSource{Object: object}}}
	if a.Source() != nil || !slices.Equal(a.Objects(), []*ObjectReference{object}) || a.Claim() != (Claim{ClaimPath, "/opt/a"}) {
		t.Errorf("%+v, %+v", a.Source(), a.Claim())
	}
	c := Resource{Name: "c", File: &File{Path: "/f", ContentFrom: &ContentSource{Path: "/srv/f"}}}
	found := false
	for _, e := range c.AutoEdges() {
		found = found || e.Other == Claim{ClaimPath, "/srv/f"}
	}
	if !found || c.Objects() != nil {
		t.Errorf("edges %v", c.AutoEdges())
	}
}
