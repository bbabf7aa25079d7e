package declare

import (
	"slices"
	"strings"
)

// Writes reports whether a resource with this claim writes the file at a path, or a part of it, though its claim is another one than the path. home gives the
// home directory of a user, empty where there is none.
func (c Claim) Writes(at string, home func(user string) string) bool {
	switch c.Kind {
	case ClaimEdit, ClaimFragment:
		return strings.HasPrefix(c.ID, at+"#")
	case ClaimAuthorizedKeys:
		dir := home(c.ID)
		return dir != "" && at == dir+"/.ssh/authorized_keys"
	}
	return slices.Contains(c.files(), at)
}

// files are those that a resource with this claim writes, by their names.
func (c Claim) files() []string {
	switch c.Kind {
	case ClaimTimer:
		return []string{UnitDir + "/" + c.ID + ".timer", UnitDir + "/" + c.ID + ".service"}
	case ClaimHostEntry:
		return []string{"/etc/hosts"}
	case ClaimMount, ClaimSwap:
		return []string{"/etc/fstab"}
	case ClaimHostname:
		return []string{"/etc/hostname"}
	case ClaimTimezone:
		return []string{"/etc/localtime", "/etc/timezone"}
	case ClaimLocale:
		return []string{"/etc/locale.conf", "/etc/default/locale", "/etc/locale.gen"}
	case ClaimSysctl:
		return []string{"/etc/sysctl.d/99-tako-" + strings.ReplaceAll(c.ID, "/", ":") + ".conf"}
	case ClaimKernelModule:
		return []string{"/etc/modules-load.d/tako-" + c.ID + ".conf", "/etc/modprobe.d/tako-" + c.ID + ".conf"}
	case ClaimRepository:
		manager, name, _ := strings.Cut(c.ID, "/")
		r := &Repository{Repository: name}
		if manager == "dnf" {
			r.Dnf = &DnfRepository{}
		}
		return []string{r.Path(name), r.KeyPath(name)}
	}
	return nil
}
