package declare

import (
	"cmp"
	"strings"

	"tako.dev/tako/internal/reason"
)

// Service is a systemd unit's run state.
//
// +k8s:deepcopy-gen=true
// +k8s:openapi-gen=true
// +k8s:openapi-model-package=dev.tako.declare
type Service struct {
	// Unit is the unit's full name. Default the resource's name, with .service where it has no unit suffix.
	Unit string `json:"unit,omitempty"`
	// State is running (the default) or stopped. One that is masked is stopped.
	State ServiceState `json:"state,omitempty"`
	// Enabled says whether it starts at boot; left out, that is not managed.
	Enabled *bool `json:"enabled,omitempty"`
	// Masked says whether it is kept from being started at all, by anybody and anything, also after a reboot. Left out, that is not managed: what
	// others have masked stays masked.
	Masked *bool `json:"masked,omitempty"`
	// OnNotify is what a notification does: restart (the default) or reload (restarts where the unit cannot reload).
	OnNotify OnNotify `json:"onNotify,omitempty"`
}

// ServiceState is whether a unit runs.
//
// +enum
type ServiceState string

// The service states.
const (
	ServiceRunning ServiceState = "running"
	ServiceStopped ServiceState = "stopped"
)

// OnNotify is what a service does when it is notified.
//
// +enum
type OnNotify string

// The answers to a notification.
const (
	NotifyRestart OnNotify = "restart"
	NotifyReload  OnNotify = "reload"
)

// unitSuffixes are the unit types of systemd.unit(5).
var unitSuffixes = []string{".service", ".socket", ".device", ".mount", ".automount", ".swap", ".target", ".path", ".timer", ".slice", ".scope"}

func (s *Service) claim(name string) Claim { return Claim{ClaimUnit, s.UnitOr(name)} }

func (s *Service) claimField() string { return "service.unit" }

func (s *Service) texts() []expandableText { return nil }

// UnitOr returns the declared unit name; when none is, it is the resource's, with .service where that has no unit suffix.
func (s *Service) UnitOr(resource string) string {
	name := cmp.Or(s.Unit, resource)
	for _, suffix := range unitSuffixes {
		if strings.HasSuffix(name, suffix) {
			return name
		}
	}
	return name + ".service"
}

// StateOrDefault returns the declared state. When none is, that is running, and stopped for what is to be masked.
func (s *Service) StateOrDefault() ServiceState {
	switch {
	case s.State != "":
		return s.State
	case s.isMasked():
		return ServiceStopped
	}
	return ServiceRunning
}

func (s *Service) isMasked() bool { return s.Masked != nil && *s.Masked }

// OnNotifyOrDefault returns the declared answer to a notification, restart when none is.
func (s *Service) OnNotifyOrDefault() OnNotify {
	if s.OnNotify == "" {
		return NotifyRestart
	}
	return s.OnNotify
}

func (s *Service) validate(v *validator) {
	if name := s.UnitOr(v.resource.Name); v.resource.Name != "" || s.Unit != "" {
		if message, hint := unitMistake(name); message != "" {
			v.invalid(v.path("service.unit"), message, hint)
		}
	}
	switch s.State {
	case "", ServiceRunning, ServiceStopped:
	default:
		v.unknownWord(v.path("service.state"), "service state", string(s.State), []string{string(ServiceRunning), string(ServiceStopped)})
	}
	if s.isMasked() {
		const hint = "a unit that is masked is neither started nor starts at boot: leave it out"
		if s.State == ServiceRunning {
			v.fault(v.path("service.state"), reason.FieldNotAllowed, "a unit that is masked cannot run", hint)
		}
		if s.Enabled != nil && *s.Enabled {
			v.fault(v.path("service.enabled"), reason.FieldNotAllowed, "a unit that is masked cannot start at boot", hint)
		}
	}
	switch s.OnNotify {
	case "", NotifyRestart, NotifyReload:
	default:
		v.unknownWord(v.path("service.onNotify"), "answer to a notification", string(s.OnNotify), []string{string(NotifyRestart), string(NotifyReload)})
	}
}

// notified marks a type that acts on notifications.
func (s *Service) notified() {}

// permanent says why a service cannot be deleted.
func (s *Service) permanent() (message, hint string) {
	return "a service cannot be deleted", "write onRemove: restore to have it as it was before, or delete its unit file or package"
}
