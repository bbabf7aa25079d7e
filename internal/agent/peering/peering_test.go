package peering

import (
	"net/netip"
	"testing"

	"tako.dev/tako/internal/transfer/client"
)

// TestAddress: others are told where they reach this host, and nothing where they cannot.
func TestAddress(t *testing.T) {
	for what, c := range map[string]struct{ bound, local, want string }{
		"every address, and servers are reached from one":      {"[::]:6445", "192.0.2.7", "192.0.2.7:6445"},
		"every address of IPv4":                                {"0.0.0.0:7000", "192.0.2.7", "192.0.2.7:7000"},
		"every address, and servers are reached over IPv6":     {"[::]:6445", "2001:db8::7", "[2001:db8::7]:6445"},
		"every address, and no server was reached yet":         {"[::]:6445", "", ""},
		"every address, and the server is on this host":        {"[::]:6445", "127.0.0.1", ""},
		"every address, and servers are reached over the link": {"[::]:6445", "fe80::1", ""},
		"one address":                      {"198.51.100.3:6445", "192.0.2.7", "198.51.100.3:6445"},
		"one address, of this host alone":  {"127.0.0.1:6445", "", "127.0.0.1:6445"},
		"none, because it does not listen": {"", "192.0.2.7", ""},
	} {
		p := New(":6445", nil, nil)
		if c.bound != "" {
			p.bound = netip.MustParseAddrPort(c.bound)
		}
		if c.local != "" {
			p.local = netip.MustParseAddr(c.local)
		}
		if got := p.Address(); got != c.want {
			t.Errorf("%s: %q, want %q", what, got, c.want)
		}
		if state := p.State(); (state != nil) != (c.want != "") || state != nil && state.Address != c.want {
			t.Errorf("%s: it tells %+v", what, state)
		}
	}
}

// TestOff: a host that takes no part asks nobody, and says so.
func TestOff(t *testing.T) {
	p := New("", nil, nil)
	var o client.Options
	p.Ask(&o)
	p.Open(t.Context(), nil)
	p.Run(t.Context(), nil)
	if p != nil || o.Peers != nil || o.Deposit != nil || o.Dial != nil || p.Address() != "" || p.State() != nil {
		t.Error("it takes part")
	}
}
