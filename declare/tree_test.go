package declare

import (
	"strings"
	"testing"
)

func TestValidateTrees(t *testing.T) {
	long := make([]string, ignoreMax+1)
	for i := range long {
		long[i] = "a"
	}
	for _, c := range []struct {
		name      string
		directory Directory
		onRemove  OnRemove
		want      string
	}{
		{"everything", Directory{Path: "/srv/web", Purge: true, Limit: PurgeLimitMax, Depth: TreeDepthMax, Ignore: []string{"*.bak", "cache/**"},
			Recurse: &Recurse{Owner: "www", Group: "33", FileMode: "u=rw,g=r,o=", DirectoryMode: "0750"}}, OnRemoveDelete, ""},
		{"empty recurse", Directory{Path: "/srv/web", Recurse: &Recurse{}}, "", "TK0413 recurse"},
		{"recurse", Directory{Path: "/srv/web", Recurse: &Recurse{Owner: "a b", Group: "a:b", FileMode: "rw", DirectoryMode: "9"}}, "",
			"TK0414 recurse.owner, TK0414 recurse.group, TK0414 recurse.fileMode, TK0414 recurse.directoryMode"},
		{"set-id", Directory{Path: "/srv/web", Recurse: &Recurse{FileMode: "4755", DirectoryMode: "2755"}}, "", "TK0415 recurse.fileMode"},
		{"alone", Directory{Path: "/srv/web", Limit: 1, Depth: 1, Ignore: []string{"a"}}, "", "TK0415 limit, TK0415 depth, TK0415 ignore"},
		{"limit of recurse", Directory{Path: "/srv/web", Recurse: &Recurse{Owner: "a"}, Limit: 1}, "", "TK0415 limit"},
		{"bounds", Directory{Path: "/srv/web", Purge: true, Limit: PurgeLimitMax + 1, Depth: TreeDepthMax + 1, Ignore: long}, "", "TK0414 limit, TK0414 depth, TK0414 ignore"},
		{"below", Directory{Path: "/srv/web", Purge: true, Limit: -1, Depth: -1, Ignore: []string{"/a", "a", "a**"}}, "", "TK0414 limit, TK0414 depth, TK0414 ignore[0], TK0414 ignore[2]"},
		{"restore", Directory{Path: "/srv/web", Purge: true}, OnRemoveRestore, "TK0415 onRemove"},
		{"restore of the directory alone", Directory{Path: "/srv/web"}, OnRemoveRestore, ""},
	} {
		got := summary(Validate(config(Resource{Name: "a", Directory: &c.directory, OnRemove: c.onRemove})))
		if got = strings.ReplaceAll(strings.ReplaceAll(got, "spec.resources[0].directory.", ""), "spec.resources[0].", ""); got != c.want {
			t.Errorf("%s: got %s, want %s", c.name, got, c.want)
		}
	}
	for p, refused := range map[string]bool{
		"/etc": true, "/usr": true, "/srv": true, "/etc/systemd/system": true, "/proc/sys": true, "/dev/shm/a": true, "/var/lib/tako": true, "/var/lib/tako/content": true, "/var/lib": true,
		"/etc/nginx": false, "/etc/systemd/system/a.service.d": false, "/var/lib/takoyaki": false, "/srv/web": false, "/etc/cron.d": false,
	} {
		if got := len(Validate(config(Resource{Name: "a", Directory: &Directory{Path: p, Purge: true}}))) > 0; got != refused {
			t.Errorf("purge of %s: refused %v, want %v", p, got, refused)
		}
		if faults := Validate(config(Resource{Name: "a", Directory: &Directory{Path: p, Recurse: &Recurse{Owner: "a"}}})); len(faults) > 0 {
			t.Errorf("recurse below %s: %v", p, faults)
		}
	}
}

func TestTreeComesAfterItsOwners(t *testing.T) {
	r := Resource{Name: "a", Directory: &Directory{Path: "/srv/web", Recurse: &Recurse{Owner: "www", Group: "$(node.name)"}}}
	found := false
	for _, e := range r.AutoEdges() {
		found = found || e.Other == Claim{ClaimUser, "www"}
	}
	if !found {
		t.Errorf("edges: %v", r.AutoEdges())
	}
}
