package declare

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"tako.dev/tako/internal/reason"
)

const (
	mountOptionsMax      = 64   // ours: far above any real mount
	mountOptionsBytesMax = 4095 // the kernel takes a page less one byte, mount(2)
	mountTypeBytesMax    = 64   // ours: the longest name in the kernel has 13
	passMax              = 2    // fstab(5): 1 for the root, 2 for all others
	swapPriorityMax      = 32767
	// swapBytesMin is what is of any use; the kernel's own least is ten pages. swapBytesMax is ours: what nobody means.
	swapBytesMin, swapBytesMax = 1 << 20, 16 << 40
)

// Mount is a file system at a directory, now and after each boot.
//
// +k8s:deepcopy-gen=true
// +k8s:openapi-gen=true
// +k8s:openapi-model-package=dev.tako.declare
type Mount struct {
	// Path is where: absolute, clean, and not /.
	Path string `json:"path"`
	// Source is what: a device, UUID=..., LABEL=..., HOST:/EXPORT, a directory or file to bind, an image, or a word such as tmpfs.
	Source string `json:"source,omitempty"`
	// Type is the kind of file system: ext4, xfs, nfs4, tmpfs. Default none with the option bind, otherwise auto, which is for what is on a device.
	Type string `json:"type,omitempty"`
	// Options are those of mount(8) and fstab(5). Default defaults.
	// +listType=atomic
	Options []string `json:"options,omitempty"`
	// State is mounted (the default), unmounted, which is in fstab and not mounted, or absent, which is neither.
	State MountState `json:"state,omitempty"`
	// Pass is the order of checks at boot, fstab(5). Default 0.
	Pass int `json:"pass,omitempty"`
}

// MountState is whether a file system is mounted.
//
// +enum
type MountState string

// The mount states.
const (
	MountMounted   MountState = "mounted"
	MountUnmounted MountState = "unmounted"
	MountAbsent    MountState = "absent"
)

// Swap is a device or a file that is swapped to, now and after each boot.
//
// +k8s:deepcopy-gen=true
// +k8s:openapi-gen=true
// +k8s:openapi-model-package=dev.tako.declare
type Swap struct {
	// Path is the device or file: absolute, clean, and not /.
	Path string `json:"path"`
	// State is on (the default) or absent, which is off and not in fstab.
	State SwapState `json:"state,omitempty"`
	// Size is that of a file that is missing, which is made: a quantity of bytes, "2Gi". Left out, it must be there.
	Size string `json:"size,omitempty"`
	// Priority is that of swapon(8), 0 to 32767. Left out, the kernel decides.
	Priority *int `json:"priority,omitempty"`
}

// SwapState is whether something is swapped to.
//
// +enum
type SwapState string

// The swap states.
const (
	SwapOn     SwapState = "on"
	SwapAbsent SwapState = "absent"
)

func (m *Mount) claim(string) Claim { return Claim{ClaimMount, m.Path} }

func (m *Mount) claimField() string { return "mount.path" }

func (m *Mount) texts() []expandableText { return nil }

// StateOrDefault returns the declared state, mounted when none is.
func (m *Mount) StateOrDefault() MountState { return cmp.Or(m.State, MountMounted) }

// Binds reports whether it shows a part of another file system.
func (m *Mount) Binds() bool {
	return slices.Contains(m.Options, "bind") || slices.Contains(m.Options, "rbind")
}

// TypeOrDefault returns the declared type; when none is, none for a bind and otherwise auto.
func (m *Mount) TypeOrDefault() string {
	if m.Binds() {
		return "none"
	}
	return cmp.Or(m.Type, "auto")
}

// networkTypes are the file systems that are on the network, with the packages that mount them.
var networkTypes = map[string][]string{
	"nfs": {"nfs-common", "nfs-utils"}, "nfs4": {"nfs-common", "nfs-utils"}, "cifs": {"cifs-utils"}, "smb3": {"cifs-utils"}, "glusterfs": {"glusterfs-client"}, "ceph": {"ceph-common"},
}

const (
	mountPoint   = "mount point"
	fileSystemOf = "file system of a path"
)

func (m *Mount) autoEdges(Claim) []AutoEdge {
	edges := append([]AutoEdge{{Other: Claim{ClaimPath, m.Path}, Why: mountPoint}}, pathAutoEdges(m.Path)...)
	if strings.HasPrefix(m.Source, "/") && !strings.HasPrefix(m.Source, "/dev/") {
		edges = append(edges, AutoEdge{Other: Claim{ClaimPath, m.Source}, Why: "source of a mount"}, AutoEdge{Other: Claim{ClaimMount, m.Source}, Why: fileSystemOf})
		edges = append(edges, pathAutoEdges(m.Source)...)
	}
	for _, name := range networkTypes[m.Type] {
		edges = append(edges, AutoEdge{Other: Claim{ClaimPackage, name}, Why: "package of a file system"})
	}
	return edges
}

func (m *Mount) validate(v *validator) {
	v.fsPath("mount.path", m.Path)
	switch m.State {
	case "", MountMounted, MountUnmounted:
	case MountAbsent:
		v.notOfAbsent("a mount", []written{
			{"mount.source", m.Source != ""}, {"mount.type", m.Type != ""}, {"mount.options", len(m.Options) > 0}, {"mount.pass", m.Pass != 0},
		})
		return
	default:
		v.unknownWord(v.path("mount.state"), "mount state", string(m.State), []string{string(MountMounted), string(MountUnmounted), string(MountAbsent)})
	}
	v.mountOptions(m)
	v.mountSource(m)
	if m.Type != "" {
		v.mountType(m)
	}
	switch {
	case m.Pass < 0 || m.Pass > passMax:
		v.invalid(v.path("mount.pass"), fmt.Sprintf("pass %d is not one of 0, 1 and 2", m.Pass), "0 is no check, 1 the root's, 2 all others'")
	case m.Pass > 0 && !strings.HasPrefix(m.Source, "/dev/") && !isDeviceTag(m.Source):
		v.fault(v.path("mount.pass"), reason.FieldNotAllowed, "what is not on a device of this host is not checked at boot", "leave pass out")
	}
}

// deviceTags are the words by which udev finds a device.
var deviceTags = []string{"UUID", "LABEL", "PARTUUID", "PARTLABEL", "ID"}

func isDeviceTag(source string) bool {
	tag, value, ok := strings.Cut(source, "=")
	return ok && value != "" && slices.Contains(deviceTags, tag)
}

// isExport reports whether a source is on another host: HOST:/PATH, //HOST/SHARE, and what is like that.
func isExport(source string) bool {
	return strings.HasPrefix(source, "//") || !strings.HasPrefix(source, "/") && !isDeviceTag(source) && strings.Contains(source, ":")
}

func (v *validator) mountSource(m *Mount) {
	at := v.path("mount.source")
	switch {
	case m.Source == "":
		v.fault(at, reason.MissingField, v.path("mount")+` has no "source"`, "a device, UUID=..., HOST:/EXPORT, a directory to bind, or a word such as tmpfs")
	case strings.IndexFunc(m.Source, isControl) >= 0 || strings.Contains(m.Source, `"`):
		v.invalid(at, "the source holds a quote or a control character", "")
	case len(m.Source) >= PathBytesMax:
		v.invalid(at, fmt.Sprintf("the source has %d bytes, at most %d are possible", len(m.Source), PathBytesMax-1), "")
	case strings.HasPrefix(m.Source, "-"):
		v.invalid(at, fmt.Sprintf("source %q begins with a dash", clipText(m.Source)), "")
	case m.Binds() && !strings.HasPrefix(m.Source, "/"), strings.HasPrefix(m.Source, "/") && !isExport(m.Source) && path.Clean(m.Source) != m.Source:
		if message, hint := pathMistake(m.Source); message != "" {
			v.invalid(at, message, hint)
		}
	case m.Binds() && m.Source == m.Path:
		v.invalid(at, "the source is the place where it is to be", "")
	case m.Type == "" && !m.Binds() && !strings.HasPrefix(m.Source, "/") && !isDeviceTag(m.Source) || m.Type == "" && isExport(m.Source):
		v.fault(v.path("mount.type"), reason.MissingField, v.path("mount")+` has no "type", and "source" is no device`, "what is on no device of this host needs one: tmpfs, nfs4, cifs")
	}
}

func (v *validator) mountType(m *Mount) {
	at := v.path("mount.type")
	switch {
	case m.Type == "swap":
		v.invalid(at, "swap is no file system", "write a resource swap: {path: ...}")
	case m.Binds() && m.Type != "none":
		v.invalid(at, fmt.Sprintf("type %q with the option bind: what is bound has the type that it has", clipText(m.Type)), "leave type out")
	case !m.Binds() && m.Type == "none":
		v.invalid(at, "type none is for the option bind only", "options: [bind]")
	case !isMadeOf(m.Type, "._-") || len(m.Type) > mountTypeBytesMax || m.Type[0] == '-':
		v.invalid(at, fmt.Sprintf("%q is not a name of a file system", clipText(m.Type)), "`cat /proc/filesystems` lists those that the kernel has by now")
	}
}

// unfitOptions are those of mount(8) that are for one call of it only.
var unfitOptions = []string{"remount", "move", "private", "shared", "slave", "unbindable", "rprivate", "rshared", "rslave", "runbindable", "beneath"}

// secretOptions carry a secret, which everybody could read in fstab and among the arguments of mount(8).
var secretOptions = []string{"password", "pass", "passwd", "password2"}

func (v *validator) mountOptions(m *Mount) {
	const field = "mount.options"
	if !v.atMost(v.path(field), len(m.Options), mountOptionsMax, "options", "") {
		return
	}
	size := 0
	for i, o := range m.Options {
		at := fmt.Sprintf("%s[%d]", v.path(field), i)
		size += len(o) + 1
		name, _, _ := strings.Cut(o, "=")
		switch {
		case o == "":
			v.invalid(at, "the option is empty", "leave it out")
		case strings.IndexFunc(o, isControl) >= 0 || strings.Count(o, `"`)%2 != 0:
			v.invalid(at, "the option holds a control character, or a quote that does not end", "")
		case hasBareComma(o):
			v.invalid(at, fmt.Sprintf("%q are several options", clipText(o)), "write them as a list, or in quotes where the comma belongs to a value")
		case slices.Contains(unfitOptions, o):
			v.invalid(at, fmt.Sprintf("option %q is for one call of mount(8), and not for fstab", o), "leave it out")
		case slices.Contains(secretOptions, name):
			v.fault(at, reason.FieldNotAllowed, fmt.Sprintf("option %q shows a secret to everybody on the host", name), "write it into a file for root only, and credentials=FILE here")
		}
	}
	if size > mountOptionsBytesMax {
		v.invalid(v.path(field), fmt.Sprintf("the options have %d bytes, at most %d are possible", size, mountOptionsBytesMax), "")
	}
	if slices.Contains(m.Options, "bind") && slices.Contains(m.Options, "rbind") {
		v.invalid(v.path(field), "the options bind and rbind exclude each other", "rbind takes along what is mounted below")
	}
}

// hasBareComma reports whether a comma stands outside of quotes.
func hasBareComma(option string) bool {
	quoted := false
	for _, c := range option {
		switch {
		case c == '"':
			quoted = !quoted
		case c == ',' && !quoted:
			return true
		}
	}
	return false
}

func (s *Swap) claim(string) Claim { return Claim{ClaimSwap, s.Path} }

func (s *Swap) claimField() string { return "swap.path" }

func (s *Swap) texts() []expandableText { return nil }

// Absent reports whether it must not be swapped to.
func (s *Swap) Absent() bool { return s.State == SwapAbsent }

// Bytes returns the declared size, 0 when none is. The resource must have passed Validate.
func (s *Swap) Bytes() int64 {
	n, _ := parseBytes(s.Size)
	return n
}

func (s *Swap) autoEdges(Claim) []AutoEdge {
	return append([]AutoEdge{{Other: Claim{ClaimPath, s.Path}, Why: "swap file"}}, pathAutoEdges(s.Path)...)
}

func (s *Swap) validate(v *validator) {
	v.fsPath("swap.path", s.Path)
	switch s.State {
	case "", SwapOn:
	case SwapAbsent:
		v.notOfAbsent("a swap", []written{{"swap.size", s.Size != ""}, {"swap.priority", s.Priority != nil}})
		return
	default:
		v.unknownWord(v.path("swap.state"), "swap state", string(s.State), []string{string(SwapOn), string(SwapAbsent)})
	}
	if p := s.Priority; p != nil && (*p < 0 || *p > swapPriorityMax) {
		v.invalid(v.path("swap.priority"), fmt.Sprintf("priority %d is not in 0 to %d", *p, swapPriorityMax), "leave it out for the kernel's choice, which comes after all others")
	}
	if s.Size == "" {
		return
	}
	at := v.path("swap.size")
	n, ok := parseBytes(s.Size)
	switch {
	case !ok:
		v.invalid(at, fmt.Sprintf("%q is not a quantity of bytes", clipText(s.Size)), `a whole number with Ki, Mi, Gi or Ti, or k, M, G or T: "2Gi"`)
	case n < swapBytesMin || n > swapBytesMax:
		v.invalid(at, fmt.Sprintf("%s is not between 1Mi and 16Ti", s.Size), "")
	case strings.HasPrefix(s.Path, "/dev/"):
		v.fault(at, reason.FieldNotAllowed, "a device has the size that it has", "leave it out")
	}
}

// byteSuffixes are those of quantities, as Kubernetes writes them.
var byteSuffixes = []struct {
	suffix string
	factor int64
}{{"Ki", 1 << 10}, {"Mi", 1 << 20}, {"Gi", 1 << 30}, {"Ti", 1 << 40}, {"k", 1e3}, {"M", 1e6}, {"G", 1e9}, {"T", 1e12}}

// parseBytes reads a quantity of whole bytes.
func parseBytes(text string) (int64, bool) {
	digits, factor := text, int64(1)
	for _, s := range byteSuffixes {
		if rest, ok := strings.CutSuffix(text, s.suffix); ok {
			digits, factor = rest, s.factor
			break
		}
	}
	n, err := strconv.ParseUint(digits, 10, 62)
	if err != nil || int64(n) > (1<<62)/factor {
		return 0, false
	}
	return int64(n) * factor, true
}
