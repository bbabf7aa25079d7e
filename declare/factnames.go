package declare

import (
	"slices"
	"strings"
)

// FactName is a fact of a host that `when` and `expand` may use, with its type.
type FactName struct {
	Name string
	Type ValueType
	Doc  string // one line for help
}

// factNames is the closed list, sorted by name. internal/facts observes exactly these.
var factNames = []FactName{
	{"facts.arch", Text, "machine architecture as Go names it, amd64"},
	{"facts.cpu.count", Integer, "processors that are online"},
	{"facts.hostname", Text, "host name of the kernel"},
	{"facts.kernel.name", Text, "kernel name, Linux"},
	{"facts.kernel.release", Text, "kernel release, 6.1.0-18-amd64"},
	{"facts.memory.bytes", Integer, "physical memory in bytes"},
	{"facts.network.primary.address", Text, "address of the interface with the default route"},
	{"facts.network.primary.interface", Text, "interface with the default route"},
	{"facts.os.codename", Text, "VERSION_CODENAME of os-release, bookworm"},
	{"facts.os.family", Text, "family of distributions, debian"},
	{"facts.os.id", Text, "ID of os-release, debian"},
	{"facts.os.name", Text, "NAME of os-release, Debian GNU/Linux"},
	{"facts.os.version", Text, "VERSION_ID of os-release, 12"},
	{"facts.virtualization", Text, "kind of virtual machine or container, none on bare metal"},
}

// FactNames returns every fact name with its type, sorted by name. The caller owns the slice.
func FactNames() []FactName { return slices.Clone(factNames) }

// Names of an expression that are not facts.
const (
	nodeName        = "node.name"
	labelNamePrefix = "node.labels['"
	labelNameSuffix = "']"
)

// LabelName is the name under which an expression asks for a label: node.labels['KEY'].
func LabelName(key string) string { return labelNamePrefix + key + labelNameSuffix }

// LabelKey returns the key of a label name.
func LabelKey(name string) (key string, ok bool) {
	key, ok = strings.CutPrefix(name, labelNamePrefix)
	if !ok {
		return "", false
	}
	return strings.CutSuffix(key, labelNameSuffix)
}

// nameType returns the type of a name that expressions may use.
func nameType(name string) (ValueType, bool) {
	if _, ok := LabelKey(name); ok || name == nodeName {
		return Text, true
	}
	i, ok := slices.BinarySearchFunc(factNames, name, func(f FactName, n string) int { return strings.Compare(f.Name, n) })
	if !ok {
		return 0, false
	}
	return factNames[i].Type, true
}

// plainNames are the names that a misspelt one is compared with.
func plainNames() []string {
	names := []string{nodeName, "node.labels"}
	for _, f := range factNames {
		names = append(names, f.Name)
	}
	return names
}
