package main

import (
	"fmt"
	"testing"

	"tako.dev/tako/internal/reason"
)

// TestNamesFlags: a host answers at the default address, a sandbox where it is told to, and nobody at an address that is none of a host.
func TestNamesFlags(t *testing.T) {
	for _, one := range []struct{ root, names, endpoints, changed, want string }{
		{"/", namesDefault, endpointsDefault, "", "[127.0.0.88:53] /run/tako-names"},
		{"/", "", "", "both", "[] "},
		{"/", "127.0.0.88:53,[::1]:5353", "/srv/names/", "both", "[127.0.0.88:53 [::1]:5353] /srv/names"},
		{"/sandbox", namesDefault, endpointsDefault, "", "[] "},
		{"/sandbox", namesDefault, endpointsDefault, "names", "[127.0.0.88:53] "},
		{"/sandbox", namesDefault, "/names", "endpoints", "[] /names"},
	} {
		c := common{root: one.root}
		w, err := c.names(one.names, one.endpoints, func(flag string) bool { return one.changed == "both" || one.changed == flag })
		if is := fmt.Sprintf("%v %s", w.Addresses, w.Endpoints); err != nil || is != one.want {
			t.Errorf("%+v: %q, %v", one, is, err)
		}
	}
	for _, one := range [][2]string{{"127.0.0.88", ""}, {"0.0.0.0:53", ""}, {"[::]:53", ""}, {"localhost:53", ""}, {"127.0.0.1:53,", ""}, {"", "run/names"}} {
		c := common{root: "/"}
		if w, err := c.names(one[0], one[1], func(string) bool { return true }); !reason.Is(err, reason.Usage) {
			t.Errorf("%q: %+v, %v", one, w, err)
		}
	}
}
