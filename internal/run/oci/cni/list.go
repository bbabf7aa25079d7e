package cni

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"tako.dev/tako/internal/facts"
)

const (
	// listMax bounds a file of the host's, and pluginsMax the plugins in it.
	listMax, pluginsMax = 256 << 10, 16
	// mappings is the capability of plugins that lead ports of the host to those of an instance.
	mappings = "portMappings"
	// bridgeName is the interface of the network that is built in.
	bridgeName = facts.InstancesBridge
)

// versions are those of the specification whose results have the form that is read here. Those from priorSince on hand a plugin its result when
// that is to be taken away.
var versions = []string{"0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"}

const priorSince = 2

// list is a network as it is configured.
type list struct {
	Name    string            `json:"name"`
	Version string            `json:"cniVersion"`
	Plugins []json.RawMessage `json:"plugins"`
}

// plugin is what is read of the configuration of one; all of it is handed on.
type plugin struct {
	Type         string          `json:"type"`
	Capabilities map[string]bool `json:"capabilities"`
	IPAM         struct {
		Type string `json:"type"`
	} `json:"ipam"`
}

// parseList reads a list.
func parseList(text []byte) (*list, error) {
	var l list
	if len(text) > listMax {
		return nil, fmt.Errorf("it has more than %d bytes", listMax)
	}
	if err := json.Unmarshal(text, &l); err != nil {
		return nil, err
	}
	return &l, l.valid()
}

func (l *list) valid() error {
	switch {
	case l.Name == "" || len(l.Name) > 255:
		return errors.New(`it has no "name", or a long one`)
	case !slices.Contains(versions, l.Version):
		return fmt.Errorf("its cniVersion is %.20q, and known are %s", l.Version, strings.Join(versions, ", "))
	case len(l.Plugins) == 0 || len(l.Plugins) > pluginsMax:
		return fmt.Errorf("it has %d plugins, and 1 to %d are possible", len(l.Plugins), pluginsMax)
	}
	for i, text := range l.Plugins {
		p, err := parsePlugin(text)
		if err != nil {
			return fmt.Errorf("plugin %d: %w", i+1, err)
		}
		for _, name := range p.programs() {
			if name != filepath.Base(name) || name == ".." || name == "." {
				return fmt.Errorf("plugin %d: its type is no name of a program", i+1)
			}
		}
	}
	return nil
}

func parsePlugin(text []byte) (p plugin, err error) {
	if err := json.Unmarshal(text, &p); err != nil {
		return p, err
	}
	if p.Type == "" {
		return p, errors.New(`it has no "type"`)
	}
	return p, nil
}

// programs are those that a plugin takes: itself, and the one that it has addresses from.
func (p *plugin) programs() []string {
	if p.IPAM.Type == "" {
		return []string{p.Type}
	}
	return []string{p.Type, p.IPAM.Type}
}

// programs are those of all plugins, each once.
func (l *list) programs() (names []string) {
	for _, text := range l.Plugins {
		if p, err := parsePlugin(text); err == nil {
			names = append(names, p.programs()...)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// leads reports whether ports of the host can be led to those of an instance.
func (l *list) leads() bool {
	return slices.ContainsFunc(l.Plugins, func(text json.RawMessage) bool {
		p, err := parsePlugin(text)
		return err == nil && p.Capabilities[mappings]
	})
}

// prior reports whether plugins want to know when something is taken away what came of it.
func (l *list) prior() bool { return slices.Index(versions, l.Version) >= priorSince }

// declared is the first list of a directory, and its file; neither: there is none.
func declared(dir string) (*list, string, error) {
	names, err := filepath.Glob(filepath.Join(dir, "*.conflist")) // in order
	if err != nil || len(names) == 0 {
		return nil, "", err
	}
	text, err := readSome(names[0], listMax+1)
	if err != nil {
		return nil, names[0], err
	}
	l, err := parseList(text)
	return l, names[0], err
}

func readSome(name string, most int64) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, most))
}

// builtIn is the network of hosts that declare none. Addresses are handed out, and kept, in a directory.
func builtIn(subnet netip.Prefix, addresses string) (*list, error) {
	l := &list{Name: "tako", Version: "1.0.0"}
	for _, p := range []any{
		map[string]any{
			"type": "bridge", "bridge": bridgeName, "isGateway": true, "ipMasq": true, "hairpinMode": true,
			"ipam": map[string]any{
				"type": "host-local", "dataDir": addresses, "ranges": [][]any{{map[string]any{"subnet": subnet.String()}}},
				"routes": []any{map[string]any{"dst": "0.0.0.0/0"}},
			},
		},
		map[string]any{"type": "portmap", "capabilities": map[string]bool{mappings: true}},
		map[string]any{"type": "firewall"}, // hosts whose FORWARD chain drops what nobody accepts
	} {
		text, err := json.Marshal(p)
		if err != nil {
			return nil, err
		}
		l.Plugins = append(l.Plugins, text)
	}
	return l, l.valid()
}

// subnets are where the network that is built in may be, of RFC 1918: not the first ones of other runtimes (docker 172.17.0.0/16, podman
// 10.88.0.0/16, flannel 10.244.0.0/16), and few use them.
var subnets = []netip.Prefix{
	netip.MustParsePrefix("10.213.0.0/16"), netip.MustParsePrefix("10.214.0.0/16"), netip.MustParsePrefix("172.29.0.0/16"),
	netip.MustParsePrefix("172.30.0.0/16"), netip.MustParsePrefix("192.168.224.0/20"),
}

// subnet is where the network is that is built in: where it was before, or else where none of the host's other networks are. The answer is
// invalid where all are taken.
func subnet(bridge, others []netip.Prefix) netip.Prefix {
	for _, s := range subnets {
		if slices.ContainsFunc(bridge, s.Overlaps) {
			return s
		}
	}
	for _, s := range subnets {
		if !slices.ContainsFunc(others, s.Overlaps) {
			return s
		}
	}
	return netip.Prefix{}
}
