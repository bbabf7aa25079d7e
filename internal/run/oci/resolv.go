package oci

import (
	"errors"
	"net/netip"
	"os"
	"strings"
)

// resolvName is resolv.conf(5), and upstreamName what systemd-resolved writes: the servers that it asks itself.
const (
	resolvName   = "/etc/resolv.conf"
	upstreamName = "/run/systemd/resolve/resolv.conf"
	// resolvMax bounds one of them; the resolvers of the C library read three lines of it.
	resolvMax = 64 << 10
)

// writeResolv writes the resolv.conf of a container with a network of its own.
func writeResolv(name string) error {
	text, err := os.ReadFile(resolvName)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	upstream, _ := os.ReadFile(upstreamName) // most hosts have none
	return os.WriteFile(name, []byte(resolv(string(text), string(upstream))), 0o644)
}

// resolv is a resolv.conf without servers that only the host itself reaches: in a network of its own a loopback address is another one. Where none is left,
// it is that of the servers which the host's own one asks.
func resolv(text, upstream string) string {
	for _, t := range []string{text, upstream} {
		lines, servers := reachable(t)
		if servers > 0 {
			return lines
		}
	}
	lines, _ := reachable(text)
	return lines
}

func reachable(text string) (lines string, servers int) {
	var b strings.Builder
	for line := range strings.Lines(text[:min(len(text), resolvMax)]) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == "nameserver" {
			if a, err := netip.ParseAddr(f[1]); err != nil || a.IsLoopback() || a.IsUnspecified() || a.IsLinkLocalUnicast() { // a link of the host is none of its
				continue
			}
			servers++
		}
		b.WriteString(line)
	}
	return b.String(), servers
}
