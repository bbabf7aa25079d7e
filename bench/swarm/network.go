package swarm

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strings"
)

// The addresses of a network that is cut: those that are kept for benchmarks of networks (RFC 2544), so that no other network is in the way.
const (
	NearAddress = "198.18.0.1"
	farAddress  = "198.18.0.2"
	linkBits    = "/30"
)

// FarNetwork is where the hosts have their addresses.
func FarNetwork() netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{198, 19}), 16)
}

// Network is a namespace with one link to this machine's network, and hosts with many addresses in it.
type Network struct{ Name string }

const nearLink, farLink = "takobench0", "takobench1"

// Open makes it. Whatever comes of that, the caller ends it with Close.
func (n Network) Open(ctx context.Context) error {
	inside := []string{"-n", n.Name}
	for _, args := range [][]string{
		{"netns", "add", n.Name},
		{"link", "add", nearLink, "type", "veth", "peer", "name", farLink, "netns", n.Name},
		{"address", "add", NearAddress + linkBits, "dev", nearLink},
		{"link", "set", nearLink, "up"},
		append(inside, "link", "set", "lo", "up"),
		append(inside, "address", "add", farAddress+linkBits, "dev", farLink),
		append(inside, "link", "set", farLink, "up"),
		// All of the network's addresses are those of the namespace, and each host has one of them.
		append(inside, "route", "add", "local", FarNetwork().String(), "dev", "lo"),
		{"route", "add", FarNetwork().String(), "via", farAddress},
	} {
		if err := ip(ctx, args...); err != nil {
			return err
		}
	}
	return nil
}

// Cut takes the link down where the hosts are: nothing comes through any more, and nobody is told.
func (n Network) Cut(ctx context.Context) error {
	return ip(ctx, "-n", n.Name, "link", "set", farLink, "down")
}

// Close removes what Open has made, also when that is not all.
func (n Network) Close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopMax)
	defer cancel()
	if _, err := os.Stat("/var/run/netns/" + n.Name); err != nil {
		return nil // it was not made
	}
	// The link goes with the namespace as soon as nobody is in it; by then another one may be wanted.
	_ = ip(ctx, "link", "delete", nearLink) // it may not have been made
	return ip(ctx, "netns", "delete", n.Name)
}

func ip(ctx context.Context, args ...string) error {
	ctx, cancel := context.WithTimeout(ctx, stopMax)
	defer cancel()
	if out, err := exec.CommandContext(ctx, "ip", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("ip %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}
