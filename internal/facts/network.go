package facts

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// InstancesBridge is the interface by which this host reaches instances that have networks of their own. Its addresses mean nothing to others, so it is no
// fact of the host.
const InstancesBridge = "tako0"

// route is a default route.
type route struct {
	device string
	metric uint64
	v6     bool
}

// Flags of a route, from linux/route.h and linux/ipv6_route.h.
const (
	routeUp     = 0x0001
	routeReject = 0x0200
)

// netInterface is an interface that is up.
type netInterface struct {
	name      string
	mac       string
	addresses []netip.Prefix // in the kernel's order, in which an interface's first address is its primary one
}

// parseRoutes4 returns the default routes of /proc/net/route. Columns: interface, destination, gateway, flags, reference
// count, use, metric, mask, ...; addresses are hexadecimal.
func parseRoutes4(b []byte) []route {
	var routes []route
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) < 8 || f[1] != "00000000" || f[7] != "00000000" {
			continue
		}
		flags, err1 := strconv.ParseUint(f[3], 16, 32)
		metric, err2 := strconv.ParseUint(f[6], 10, 32)
		if err1 != nil || err2 != nil || flags&routeUp == 0 || flags&routeReject != 0 {
			continue
		}
		routes = append(routes, route{device: f[0], metric: metric})
	}
	return routes
}

// parseRoutes6 returns the default routes of /proc/net/ipv6_route. Columns: destination, its prefix length, source, its
// prefix length, next hop, metric, reference count, use, flags, interface; numbers are hexadecimal.
func parseRoutes6(b []byte) []route {
	const anywhere = "00000000000000000000000000000000"
	var routes []route
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) != 10 || f[0] != anywhere || f[1] != "00" || f[9] == "lo" {
			continue
		}
		metric, err1 := strconv.ParseUint(f[5], 16, 32)
		flags, err2 := strconv.ParseUint(f[8], 16, 32)
		if err1 != nil || err2 != nil || flags&routeUp == 0 || flags&routeReject != 0 {
			continue
		}
		routes = append(routes, route{device: f[9], metric: metric, v6: true})
	}
	return routes
}

// networkOf picks the primary interface and address: the default route with the lowest metric, IPv4 before IPv6, the first
// listed of equals, on an interface that has an address of the route's family. On a host without a default route, as in a network that is
// shut off, it is the only interface that has an address: where there are several, nothing says which one others use.
func networkOf(routes []route, interfaces []netInterface) Network {
	var n Network
	for _, i := range interfaces {
		if i.name == InstancesBridge {
			continue
		}
		reached := Interface{Name: i.name, MAC: i.mac}
		for _, p := range i.addresses {
			if reachable(p.Addr()) {
				reached.Addresses = append(reached.Addresses, p)
			}
		}
		n.Addresses = append(n.Addresses, reached.Addresses...)
		// Without an address it is a cable of others, such as the one of each container.
		if len(reached.Addresses) > 0 && len(n.Interfaces) < listMax {
			n.Interfaces = append(n.Interfaces, reached)
		}
	}
	slices.SortFunc(n.Interfaces, func(a, b Interface) int { return strings.Compare(a.Name, b.Name) })
	sorted := slices.Clone(routes)
	slices.SortStableFunc(sorted, func(a, b route) int {
		switch {
		case a.v6 != b.v6 && b.v6, a.v6 == b.v6 && a.metric < b.metric:
			return -1
		case a.v6 == b.v6 && a.metric == b.metric:
			return 0
		}
		return 1
	})
	for _, r := range sorted {
		for _, i := range interfaces {
			if i.name != r.device {
				continue
			}
			for _, p := range i.addresses {
				if a := p.Addr(); reachable(a) && a.Is6() == r.v6 {
					n.PrimaryInterface, n.PrimaryAddress = r.device, a
					return n
				}
			}
		}
	}
	if len(routes) == 0 && len(n.Interfaces) == 1 {
		n.PrimaryInterface, n.PrimaryAddress = n.Interfaces[0].Name, first(n.Interfaces[0].Addresses)
	}
	return n
}

// first is the first IPv4 address, or the first of all.
func first(addresses []netip.Prefix) netip.Addr {
	for _, p := range addresses {
		if p.Addr().Is4() {
			return p.Addr()
		}
	}
	return addresses[0].Addr()
}

// reachable reports whether other hosts may use the address.
func reachable(a netip.Addr) bool { return a.IsGlobalUnicast() }
