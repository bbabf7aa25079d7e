package declare

import (
	"fmt"
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
	{"facts.boot.id", Text, "random identifier of this boot of the kernel"},
	{"facts.cpu.count", Integer, "processors that are online"},
	{"facts.cpu.model", Text, "model name of the first processor"},
	{"facts.disks", List, "names of the disks, sda"},
	{"facts.fqdn", Text, "host name with its domain: itself if it has one, otherwise as /etc/hosts has it"},
	{"facts.hostname", Text, "host name of the kernel"},
	{"facts.kernel.name", Text, "kernel name, Linux"},
	{"facts.kernel.release", Text, "kernel release, 6.1.0-18-amd64"},
	{"facts.memory.bytes", Integer, "physical memory in bytes"},
	{"facts.network.addresses", List, "addresses that other hosts can use, of all interfaces"},
	{"facts.network.interfaces", List, "interfaces that are up and have such an address, eth0"},
	{"facts.network.primary.address", Text, "address of the primary interface"},
	{"facts.network.primary.interface", Text, "interface with the default route; without one, the only one that has an address"},
	{"facts.os.codename", Text, "VERSION_CODENAME of os-release, bookworm"},
	{"facts.os.family", Text, "family of distributions, debian"},
	{"facts.os.id", Text, "ID of os-release, debian"},
	{"facts.os.name", Text, "NAME of os-release, Debian GNU/Linux"},
	{"facts.os.version", Text, "VERSION_ID of os-release, 12"},
	{"facts.packages.manager", Text, "apt, dnf, zypper, apk or pacman"},
	{"facts.selinux", Text, "enforcing, permissive or disabled"},
	{"facts.systemd.version", Integer, "major version of systemd, 252"},
	{"facts.timezone", Text, "time zone of the system, Europe/Berlin"},
	{"facts.virtualization", Text, "kind of virtual machine or container, none on bare metal"},
}

// FactNames returns every fact name with its type, sorted by name. The caller owns the slice.
func FactNames() []FactName { return slices.Clone(factNames) }

// The groups of facts with a member for each disk and each interface, see MemberName.
const (
	DiskFacts      = "facts.disks"
	InterfaceFacts = "facts.network.interfaces"
)

// memberFields are the fields that a member of a group has.
var memberFields = map[string][]FactName{
	DiskFacts: {
		{"bytes", Integer, "size in bytes"},
		{"model", Text, "model as the disk says it"},
		{"rotational", Boolean, "whether it turns"},
	},
	InterfaceFacts: {
		{"address", Text, "its first address"},
		{"addresses", List, "all its addresses"},
		{"mac", Text, "hardware address, 52:54:00:12:34:56"},
	},
}

// MemberFields returns the fields of a group's members. The caller owns the slice.
func MemberFields(group string) []FactName { return slices.Clone(memberFields[group]) }

// MemberName is the name of a field of one disk or one interface: facts.disks['sda'].bytes.
func MemberName(group, key, field string) string { return group + "['" + key + "']." + field }

// CutMember takes a MemberName apart.
func CutMember(name string) (group, key, field string, ok bool) {
	group, rest, ok := strings.Cut(name, "['")
	if !ok {
		return "", "", "", false
	}
	key, field, ok = strings.Cut(rest, "'].")
	return group, key, field, ok
}

func isFactGroup(name string) bool { return memberFields[name] != nil }

// isMemberKey accepts what the kernel can call a disk or an interface, and no sign of the names that are made of it.
func isMemberKey(s string) bool {
	const keyBytesMax = 64
	return len(s) <= keyBytesMax && isMadeOf(s, "._-@:!+")
}

// Own facts are what the administrator of a host writes into files of OwnFactsDir: facts.custom.FILE.KEY.
const (
	OwnFactsDir    = "/etc/tako/facts.d"
	OwnFactsPrefix = "facts.custom."
)

// anyType is the type of an own fact: what it is, is known where the host is.
const anyType ValueType = 0

// AllFacts is the name under which a host's facts have a text that changes when one of them does. No expression can use it.
const AllFacts = "facts"

// OwnFactWord reports whether s can be the FILE or the KEY of an own fact: letters, digits and _, a letter first.
func OwnFactWord(s string) bool {
	const wordBytesMax = 64
	return len(s) <= wordBytesMax && isMadeOf(s, "_") && isAlphanum(s[0]) && (s[0] < '0' || s[0] > '9')
}

func isOwnFact(name string) bool {
	rest, ok := strings.CutPrefix(name, OwnFactsPrefix)
	file, key, two := strings.Cut(rest, ".")
	return ok && two && OwnFactWord(file) && OwnFactWord(key)
}

// factFormHint is what to write in place of a name that begins as a fact with a form of its own.
func factFormHint(name string) string {
	if group, _, field, ok := CutMember(name); ok {
		var fields []string
		for _, f := range memberFields[group] {
			fields = append(fields, f.Name)
		}
		return didYouMean(field, fields)
	}
	for _, group := range []string{DiskFacts, InterfaceFacts} {
		rest, ok := strings.CutPrefix(name, group+".")
		key, field, two := strings.Cut(rest, ".")
		if ok && two && isMemberKey(key) {
			return "it is written " + MemberName(group, key, field)
		}
		if ok {
			return "write for example " + MemberName(group, rest, memberFields[group][0].Name)
		}
	}
	if strings.HasPrefix(name, OwnFactsPrefix) {
		return fmt.Sprintf("an own fact is written %sFILE.KEY, both of letters, digits and _", OwnFactsPrefix)
	}
	return ""
}

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
	if isOwnFact(name) {
		return anyType, true
	}
	if group, key, field, ok := CutMember(name); ok {
		for _, f := range memberFields[group] {
			if f.Name == field && isMemberKey(key) {
				return f.Type, true
			}
		}
		return 0, false
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
