package service

import (
	"slices"
	"testing"

	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/systemd"
)

func TestCompare(t *testing.T) {
	unit := func(active, sub, file string) systemd.UnitState {
		return systemd.UnitState{Name: "x.service", LoadState: "loaded", ActiveState: active, SubState: sub, UnitFileState: file, Result: "success"}
	}
	crashed := unit("failed", "failed", "enabled")
	crashed.Result = "exit-code"
	stale := unit("active", "running", "enabled")
	stale.NeedDaemonReload = true
	none := systemd.UnitState{LoadState: "not-found", ActiveState: "inactive"}
	hidden := systemd.UnitState{LoadState: "masked", ActiveState: "active", UnitFileState: "masked"}
	state := func(from, to string) host.Change { return host.Change{Field: "state", From: from, To: to} }
	boots := func(from, to string) host.Change { return host.Change{Field: "enabled", From: from, To: to} }
	masks := func(from, to string) host.Change { return host.Change{Field: "masked", From: from, To: to} }
	up, down := resource{running: true}, resource{}
	upEnabled, downDisabled := resource{running: true, enabled: enabled}, resource{enabled: disabled}
	for _, row := range []struct {
		r    resource
		s    systemd.UnitState
		want []host.Change
		code reason.Code
	}{
		{r: up, s: unit("active", "running", "static")},
		{r: up, s: unit("active", "exited", "static")},
		{r: up, s: unit("reloading", "reload", "static")},
		{r: up, s: unit("inactive", "dead", ""), want: []host.Change{state("stopped", "running")}},
		{r: up, s: unit("activating", "start", ""), want: []host.Change{state("activating", "running")}},
		{r: up, s: unit("activating", "auto-restart", ""), want: []host.Change{state("waits for its restart", "running")}},
		{r: up, s: unit("deactivating", "stop", ""), code: reason.UnitBusy},
		{r: up, s: crashed, want: []host.Change{state("failed (exit-code)", "running")}},
		{r: up, s: stale, want: []host.Change{{Field: "daemon-reload", From: "unit files changed", To: "read"}}},
		{r: up, s: none, code: reason.UnitNotFound},
		{r: up, s: hidden, code: reason.UnitMasked},
		{r: down, s: unit("inactive", "dead", "enabled")},
		{r: down, s: crashed},
		{r: down, s: none},
		{r: down, s: hidden, want: []host.Change{state("running", "stopped")}},
		{r: down, s: unit("activating", "auto-restart", ""), want: []host.Change{state("waits for its restart", "stopped")}},
		{r: down, s: unit("deactivating", "stop", ""), want: []host.Change{state("deactivating", "stopped")}},
		{r: resource{running: true, anyState: true}, s: unit("inactive", "dead", "")},
		{r: resource{running: true, anyState: true}, s: unit("deactivating", "stop", "")},
		{r: resource{running: true, anyState: true}, s: hidden},
		{r: resource{running: true, anyState: true, enabled: enabled}, s: unit("inactive", "dead", "disabled"), want: []host.Change{boots("disabled", "enabled")}},
		{r: resource{anyState: true}, s: unit("active", "running", "")},
		{r: upEnabled, s: unit("active", "running", "enabled")},
		{r: upEnabled, s: unit("inactive", "dead", "disabled"), want: []host.Change{boots("disabled", "enabled"), state("stopped", "running")}},
		{r: upEnabled, s: unit("active", "running", "enabled-runtime"), want: []host.Change{boots("enabled-runtime", "enabled")}},
		{r: upEnabled, s: unit("active", "running", "static"), code: reason.UnitNotInstalled},
		{r: upEnabled, s: unit("active", "running", "indirect"), code: reason.UnitNotInstalled},
		{r: upEnabled, s: unit("active", "running", "alias"), code: reason.UnitNotInstalled},
		{r: upEnabled, s: unit("active", "running", "generated"), code: reason.UnitNotInstalled},
		{r: upEnabled, s: unit("active", "running", "transient"), code: reason.UnitNotInstalled},
		{r: upEnabled, s: unit("active", "running", ""), code: reason.UnitNotInstalled},
		{r: upEnabled, s: unit("active", "running", "bad"), code: reason.UnitEnableRefused},
		{r: resource{enabled: enabled}, s: none, code: reason.UnitNotFound},
		{r: downDisabled, s: unit("inactive", "dead", "enabled"), want: []host.Change{boots("enabled", "disabled")}},
		{r: downDisabled, s: unit("inactive", "dead", "enabled-runtime")},
		{r: downDisabled, s: unit("inactive", "dead", "static")},
		{r: downDisabled, s: unit("inactive", "dead", "masked")},
		{r: downDisabled, s: unit("inactive", "dead", "generated"), code: reason.UnitNotInstalled},
		{r: downDisabled, s: none},
		{r: resource{mask: maskedForGood}, s: none, want: []host.Change{masks("not masked", "masked")}},
		{r: resource{mask: maskedForGood}, s: unit("inactive", "dead", "masked")},
		{r: resource{mask: maskedForGood}, s: unit("inactive", "dead", "masked-runtime"), want: []host.Change{masks("masked-runtime", "masked")}},
		{r: resource{mask: maskedForGood}, s: unit("active", "running", "enabled"), want: []host.Change{masks("not masked", "masked"), state("running", "stopped")}},
		{r: resource{mask: unmasked, running: true}, s: unit("inactive", "dead", "masked"), want: []host.Change{masks("masked", "not masked"), state("stopped", "running")}},
		{r: resource{mask: unmasked, running: true, enabled: enabled}, s: unit("inactive", "dead", "masked"),
			want: []host.Change{masks("masked", "not masked"), boots("masked", "enabled"), state("stopped", "running")}},
		{r: resource{mask: unmasked}, s: none},
		{r: up, s: unit("inactive", "dead", "masked-runtime"), code: reason.UnitMasked},
	} {
		got, err := row.r.compare(row.s)
		if !slices.Equal(got, row.want) || (err != nil || row.code != 0) && !reason.Is(err, row.code) {
			t.Errorf("%+v with %+v: %v, %v", row.r, row.s, got, err)
		}
	}
}
