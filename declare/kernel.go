package declare

import (
	"cmp"
	"fmt"
	"path"
	"strings"

	"tako.dev/tako/internal/reason"
)

const (
	sysctlKeyBytesMax   = 200  // what is left of a file's name, 255 bytes, for a temporary beside it
	sysctlValueBytesMax = 4095 // the kernel takes less than a page
	moduleBytesMax      = 55   // MODULE_NAME_LEN of linux/moduleparam.h, without its end
	moduleOptionsMax    = 64   // ours: far above any real module
	moduleOptionsBytes  = 4096 // COMMAND_LINE_SIZE, which bounds what a module gets at boot
	procSys             = "/proc/sys/"
	sysctlKeySigns      = "._-+@%,~/" // of names of interfaces and devices, besides letters and digits
)

// Sysctl is a parameter of the kernel, now and after each boot.
//
// +k8s:deepcopy-gen=true
// +k8s:openapi-gen=true
// +k8s:openapi-model-package=dev.tako.declare
type Sysctl struct {
	// Key is its name with dots: net.ipv4.ip_forward. A dot within a part is written as a slash. Default the resource's name.
	Key string `json:"key,omitempty"`
	// Value is its value, with one blank between several.
	Value string `json:"value"`
}

// KernelModule is a module of the kernel, now and after each boot.
//
// +k8s:deepcopy-gen=true
// +k8s:openapi-gen=true
// +k8s:openapi-model-package=dev.tako.declare
type KernelModule struct {
	// Module is its name. Default the resource's name.
	Module string `json:"module,omitempty"`
	// State is loaded (the default), unloaded, or blocked, which is unloaded and refused to whoever wants to load it.
	State ModuleState `json:"state,omitempty"`
	// Options are its parameters, which count when it is loaded. One that is loaded with others is not loaded anew; that is told.
	Options map[string]string `json:"options,omitempty"`
}

// ModuleState is whether a module of the kernel is wanted.
//
// +enum
type ModuleState string

// The module states.
const (
	ModuleLoaded   ModuleState = "loaded"
	ModuleUnloaded ModuleState = "unloaded"
	ModuleBlocked  ModuleState = "blocked"
)

func (s *Sysctl) claim(name string) Claim { return Claim{ClaimSysctl, s.KeyOr(name)} }

func (s *Sysctl) claimField() string { return "sysctl.key" }

func (s *Sysctl) texts() []expandableText { return []expandableText{{"sysctl.value", &s.Value}} }

// KeyOr returns the declared key; when none is it is the resource's name.
func (s *Sysctl) KeyOr(resource string) string { return cmp.Or(s.Key, resource) }

// SysctlPath is where the kernel shows the parameter of a key: the key with slashes for dots, and dots for slashes.
func SysctlPath(key string) string {
	return procSys + strings.Map(func(r rune) rune {
		switch r {
		case '.':
			return '/'
		case '/':
			return '.'
		}
		return r
	}, key)
}

// SysctlKey is the key of a parameter's path; it undoes SysctlPath.
func SysctlKey(path string) string {
	return strings.TrimPrefix(SysctlPath(strings.TrimPrefix(path, procSys)), procSys)
}

// CanonicalSysctl is a key with dots between its parts, whichever way it was written: what separates its first two parts does so for all,
// sysctl.d(5).
func CanonicalSysctl(key string) string {
	if dot, slash := strings.IndexByte(key, '.'), strings.IndexByte(key, '/'); slash >= 0 && (dot < 0 || slash < dot) {
		return SysctlKey(key)
	}
	return key
}

func (s *Sysctl) validate(v *validator) {
	if key := s.KeyOr(v.resource.Name); s.Key != "" || v.resource.Name != "" {
		if message, hint := sysctlKeyMistake(key); message != "" {
			v.invalid(v.path("sysctl.key"), message, hint)
		}
	}
	switch {
	case s.Value == "":
		v.fault(v.path("sysctl.value"), reason.MissingField, v.path("sysctl")+` has no "value"`, "")
	case !v.expands(s.Value):
		if message, hint := SysctlValueMistake(s.Value); message != "" {
			v.invalid(v.path("sysctl.value"), message, hint)
		}
	}
}

// sysctlKeyMistake returns what is wrong with a key, or "".
func sysctlKeyMistake(key string) (message, hint string) {
	const example = "parts with dots between them: net.ipv4.ip_forward"
	p := SysctlPath(key)
	switch {
	case len(key) > sysctlKeyBytesMax:
		return fmt.Sprintf("the key has %d bytes, at most %d are allowed", len(key), sysctlKeyBytesMax), ""
	case CanonicalSysctl(key) != key:
		return fmt.Sprintf("key %q has slashes where dots belong", clipText(key)), fmt.Sprintf("write %q", clipText(CanonicalSysctl(strings.TrimPrefix(key, procSys))))
	case !strings.Contains(key, "."), !isMadeOf(key, sysctlKeySigns), path.Clean(p) != p:
		return fmt.Sprintf("%q is not a name of a kernel parameter", clipText(key)), example + "; a dot within a part is written as a slash: net.ipv4.conf.eth0/100.forwarding"
	}
	return "", ""
}

// SysctlValueMistake returns what is wrong with a value of a parameter, or "". A value may be expanded, so the host asks too.
func SysctlValueMistake(value string) (message, hint string) {
	switch {
	case len(value) > sysctlValueBytesMax:
		return fmt.Sprintf("the value has %d bytes, at most %d are possible", len(value), sysctlValueBytesMax), ""
	case strings.IndexFunc(value, isControl) >= 0:
		return "the value holds a line's end or another control character", "write one blank between several values"
	case strings.Join(strings.Fields(value), " ") != value || value == "":
		return "the value has blanks that do not count, or nothing else", "write one blank between several values, and none before and after"
	}
	return "", ""
}

// sysctlModules are modules without which the kernel has not the parameters that begin so.
var sysctlModules = []struct{ prefix, module string }{
	{"net.bridge.", "br_netfilter"}, {"net.netfilter.nf_conntrack", "nf_conntrack"}, {"net.nf_conntrack_max", "nf_conntrack"},
	{"net.ipv4.vs.", "ip_vs"}, {"net.sctp.", "sctp"}, {"net.mptcp.", "mptcp"}, {"sunrpc.", "sunrpc"}, {"fs.nfs.", "nfs"}, {"dev.raid.", "md_mod"},
}

// SysctlModule is the module that brings a parameter; "" where it is not known, or none is needed.
func SysctlModule(key string) string {
	for _, m := range sysctlModules {
		if strings.HasPrefix(key, m.prefix) {
			return m.module
		}
	}
	return ""
}

func (s *Sysctl) autoEdges(claim Claim) []AutoEdge {
	if m := SysctlModule(claim.ID); m != "" {
		return []AutoEdge{{Other: Claim{ClaimKernelModule, m}, Why: "module of a kernel parameter"}}
	}
	return nil
}

// claim takes - for _, as the kernel does.
func (m *KernelModule) claim(name string) Claim { return Claim{ClaimKernelModule, m.NameOr(name)} }

func (m *KernelModule) claimField() string { return "kernelModule.module" }

func (m *KernelModule) texts() []expandableText { return nil }

// NameOr returns the module's name as the kernel has it, with _ for -; when none is declared it is the resource's.
func (m *KernelModule) NameOr(resource string) string {
	return strings.ReplaceAll(cmp.Or(m.Module, resource), "-", "_")
}

// StateOrDefault returns the declared state, loaded when none is.
func (m *KernelModule) StateOrDefault() ModuleState { return cmp.Or(m.State, ModuleLoaded) }

func (m *KernelModule) autoEdges(Claim) []AutoEdge {
	return []AutoEdge{{Other: Claim{ClaimPackage, "kmod"}, Why: "package that loads modules"}}
}

func (m *KernelModule) validate(v *validator) {
	name := m.NameOr(v.resource.Name)
	if (m.Module != "" || v.resource.Name != "") && (!isMadeOf(name, "_") || len(name) > moduleBytesMax) {
		v.invalid(v.path("kernelModule.module"), fmt.Sprintf("%q is not a name of a kernel module", clipText(name)),
			"letters, digits, _ and -, without .ko, as `modprobe` takes it; give the module's own name in `module`")
	}
	switch m.State {
	case "", ModuleLoaded, ModuleUnloaded:
	case ModuleBlocked:
		if len(m.Options) > 0 {
			v.fault(v.path("kernelModule.options"), reason.FieldNotAllowed, "a module that nobody may load has no options", "leave them out")
		}
	default:
		v.unknownWord(v.path("kernelModule.state"), "module state", string(m.State), []string{string(ModuleLoaded), string(ModuleUnloaded), string(ModuleBlocked)})
	}
	v.moduleOptions(m.Options)
}

func (v *validator) moduleOptions(options map[string]string) {
	const field = "kernelModule.options"
	if !v.atMost(v.path(field), len(options), moduleOptionsMax, "options", "") {
		return
	}
	size := 0
	for _, name := range sortedKeys(options) {
		value := options[name]
		size += len(name) + len(value) + 2
		switch {
		case !isMadeOf(name, "_"):
			v.invalid(v.path(field), fmt.Sprintf("%q is not a name of an option", clipText(name)), "`modinfo -p MODULE` lists them")
		case value == "" || strings.ContainsAny(value, "\"'\\# ") || strings.IndexFunc(value, isControl) >= 0:
			v.invalid(v.path(field), fmt.Sprintf("the value of option %q is empty, or holds a blank, quote, backslash, # or control character", name), "write several values with commas")
		}
	}
	if size > moduleOptionsBytes {
		v.invalid(v.path(field), fmt.Sprintf("the options have %d bytes, at most %d are possible", size, moduleOptionsBytes), "")
	}
}
