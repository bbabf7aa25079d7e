package ground

import (
	"context"
	"errors"
	"reflect"
	"testing"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/host"
)

// sweeping is a type that notes what it is asked to sweep.
type sweeping struct {
	host.Type
	name string
	log  *[]string
	dirs map[string][]string
	err  error
}

func (s *sweeping) Sweep(_ context.Context, dirs []string) error {
	*s.log = append(*s.log, s.name)
	s.dirs[s.name] = dirs
	return s.err
}

// TestSweep: each type sweeps where its resources stand, files first and wherever a path is declared; one that has no resources sweeps what is its own;
// what one cannot do keeps no other from it.
func TestSweep(t *testing.T) {
	var log []string
	dirs, broken := map[string][]string{}, errors.New("broken")
	files := &sweeping{name: "files", log: &log, dirs: dirs, err: broken}
	types := map[declare.ResourceType]host.Type{
		declare.TypeFile: files, declare.TypeDirectory: files, declare.TypeArchive: &sweeping{name: "archives", log: &log, dirs: dirs},
		declare.TypeTimer: &sweeping{name: "timers", log: &log, dirs: dirs}, declare.TypePackage: struct{ host.Type }{},
	}
	err := Sweep(t.Context(), types, all(
		Member{Claim: claim(declare.ClaimPath, "/srv/b/file"), Type: declare.TypeFile, Resource: thing{[]string{"/srv/b/file"}}},
		Member{Claim: claim(declare.ClaimPath, "/srv/b/dir"), Type: declare.TypeDirectory},
		Member{Claim: claim(declare.ClaimPath, "/srv/a/held")},
		Member{Claim: claim(declare.ClaimTimer, "t"), Type: declare.TypeTimer, Resource: thing{[]string{"/etc/units/t.timer", "/etc/units/t.service", "/proc/sys/x", "/sys/y"}}},
		Member{Claim: claim(declare.ClaimTimer, "unbound"), Type: declare.TypeTimer},
		Member{Claim: claim(declare.ClaimPackage, "nginx"), Type: declare.TypePackage, Resource: thing{[]string{"/var/lib/dpkg/status"}}},
	))
	if !errors.Is(err, broken) {
		t.Errorf("%v", err)
	}
	if want := []string{"files", "archives", "timers"}; !reflect.DeepEqual(log, want) {
		t.Errorf("%v, want %v", log, want)
	}
	want := map[string][]string{"files": {"/srv/a", "/srv/b"}, "archives": nil, "timers": {"/etc", "/etc/units", "/etc/units/t.service.d", "/etc/units/t.timer.d"}}
	if !reflect.DeepEqual(dirs, want) {
		t.Errorf("%v, want %v", dirs, want)
	}
}
