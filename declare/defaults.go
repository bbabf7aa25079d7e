package declare

import (
	"strconv"
	"time"
)

// Defaults are functions and never values filled in: what is encoded, compared and sent holds only what was declared, so a
// later default changes nothing that is stored (model.md, Body).

// The default modes and priorities. A file is readable by all and a directory enterable by all, as a plain umask of 022 makes them.
const (
	fileModeDefault               = 0o644
	secretModeDefault             = 0o600
	directoryModeDefault          = 0o755
	priorityDefault               = 100
	clusterPriorityDefault        = 1100
	priorityMax                   = 999  // of a NodeConfig, whose priorities begin at 0
	clusterPriorityMin            = 1000 // of a ClusterNodeConfig
	clusterPriorityMax            = 1999
	haltOnFailedDefault           = 1
	maxUnavailableDefault         = IntOrPercent("10%")
	modeMax                       = 0o7777
	modeOthers             uint32 = 0o077
)

// Bits returns the mode as the kernel counts it, permission and the three special bits; false if it is not an octal number
// up to 07777.
func (m Mode) Bits() (uint32, bool) {
	if len(m) == 0 || len(m) > 5 {
		return 0, false
	}
	n, err := strconv.ParseUint(string(m), 8, 32)
	return uint32(n), err == nil && n <= modeMax
}

func (m Mode) bitsOr(other uint32) uint32 {
	if bits, ok := m.Bits(); ok {
		return bits
	}
	return other
}

// ModeOrDefault returns the file's mode bits. When none is declared they are 0644, and 0600 where the content is from a Secret.
func (f *File) ModeOrDefault() uint32 {
	if f.FromSecret() {
		return f.Mode.bitsOr(secretModeDefault)
	}
	return f.Mode.bitsOr(fileModeDefault)
}

// FromSecret reports whether the content is a value of a Secret.
func (f *File) FromSecret() bool { return f.ContentFrom != nil && f.ContentFrom.Secret != nil }

// Private reports whether the content is shown nowhere: only the owner may use the file, or the content is from a Secret.
func (f *File) Private() bool { return f.FromSecret() || f.ModeOrDefault()&modeOthers == 0 }

// ModeOrDefault returns the directory's mode bits, 0755 when none is declared.
func (d *Directory) ModeOrDefault() uint32 { return d.Mode.bitsOr(directoryModeDefault) }

// StateOrDefault returns the declared state, present when none is.
func (p *Package) StateOrDefault() PackageState {
	if p.State == "" {
		return PackagePresent
	}
	return p.State
}

// StateOrDefault returns the declared state, running when none is.
func (s *Service) StateOrDefault() ServiceState {
	if s.State == "" {
		return ServiceRunning
	}
	return s.State
}

// OnNotifyOrDefault returns the declared answer to a notification, restart when none is.
func (s *Service) OnNotifyOrDefault() OnNotify {
	if s.OnNotify == "" {
		return NotifyRestart
	}
	return s.OnNotify
}

// OnRemoveOrDefault returns what happens when the resource leaves the declaration. When nothing is declared that is keep; a file whose
// content is a value of a Secret is deleted, because who is not given a secret any more is not to go on having it.
func (r *Resource) OnRemoveOrDefault() OnRemove {
	switch {
	case r.OnRemove != "":
		return r.OnRemove
	case r.File != nil && r.File.FromSecret():
		return OnRemoveDelete
	}
	return OnRemoveKeep
}

// PriorityOr returns the declared priority, or the default of the kind: 100, and 1100 for a ClusterNodeConfig.
func (s *NodeConfigSpec) PriorityOr(kind string) int {
	switch {
	case s.Priority != nil:
		return *s.Priority
	case kind == KindClusterNodeConfig:
		return clusterPriorityDefault
	}
	return priorityDefault
}

// Priority returns the priority that the config has, declared or by default.
func (c *NodeConfig) Priority() int { return c.Spec.PriorityOr(c.Kind) }

// MaxUnavailableOrDefault returns how many nodes may be on the way at once, "10%" when nothing is declared.
func (r *Rollout) MaxUnavailableOrDefault() IntOrPercent {
	if r.MaxUnavailable == "" {
		return maxUnavailableDefault
	}
	return r.MaxUnavailable
}

// HaltOnFailedOrDefault returns how many failed nodes halt the rollout, 1 when nothing is declared.
func (r *Rollout) HaltOnFailedOrDefault() int {
	if r.HaltOnFailed == nil {
		return haltOnFailedDefault
	}
	return *r.HaltOnFailed
}

// TryOrZero returns how long a new revision is tried; 0 when it is not, and it stays.
func (r *Rollout) TryOrZero() time.Duration {
	d, err := time.ParseDuration(r.Try)
	if err != nil {
		return 0
	}
	return d
}
