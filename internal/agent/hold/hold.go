// Package hold is what people keep on a host as it is, for a reason and until a time: the holds that the host has of its own, in its state
// directory. Those of its cluster come with what its servers say.
//
// The package owns no goroutine.
package hold

import (
	"errors"
	"strings"
	"time"

	"tako.dev/tako/internal/agent/report"
	"tako.dev/tako/internal/agent/store"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/reason"
)

// Bounds of the holds that a host has of its own: ours, far above what anybody can keep in mind.
const (
	ownHoldsMax       = 100
	holdTextBytesMax  = 1 << 10
	holdDurationLimit = 366 * 24 * time.Hour
)

// Set remembers a hold, durably, in the place of the one of the same config and claim. The errors are HoldInvalid and StateUnwritable.
func Set(st *store.Store, h report.Hold) error {
	now := time.Now()
	invalid := func(why string) error {
		return &reason.Error{Code: reason.HoldInvalid, Doing: "hold", Cause: errors.New(why), Hint: "write --reason 'why' --for 1h"}
	}
	switch {
	case strings.TrimSpace(h.Reason) == "" || strings.TrimSpace(h.Owner) == "":
		return invalid("a hold needs a reason and an owner")
	case len(h.Reason) > holdTextBytesMax || len(h.Owner) > holdTextBytesMax:
		return invalid("the reason is too long")
	case !h.Until.After(now):
		return invalid("a hold needs an end that is not over")
	case h.Until.Sub(now) > holdDurationLimit:
		return invalid("a hold lasts a year at most")
	}
	if _, err := st.EndHolds(func(h store.Hold) bool { return h.Until <= now.Unix() }); err != nil {
		return err
	}
	if len(st.Holds()) >= ownHoldsMax {
		return invalid("there are too many holds already")
	}
	return st.SetHold(store.Hold{Config: h.Config, Claim: h.Claim, Reason: h.Reason, Owner: h.Owner, Until: h.Until.Unix()})
}

// End ends the hold of a config and a claim, or, where both are empty, all, and returns those that have not ended by themselves.
func End(st *store.Store, of report.Hold) ([]report.Hold, error) {
	all := of.Config == "" && of.Claim == ""
	ended, err := st.EndHolds(func(h store.Hold) bool { return all || h.Config == of.Config && h.Claim == of.Claim })
	return Lasting(ended, time.Now()), err
}

// Lasting are the holds that have not ended by themselves, as people see them.
func Lasting(list []store.Hold, now time.Time) (held []report.Hold) {
	for _, h := range list {
		if until := time.Unix(h.Until, 0); now.Before(until) {
			held = append(held, report.Hold{Config: h.Config, Claim: h.Claim, Reason: h.Reason, Owner: h.Owner, Until: until})
		}
	}
	return held
}

// Own are the holds that the host has of its own.
func Own(st *store.Store) (list []catalog.Hold) {
	for _, h := range st.Holds() {
		list = append(list, catalog.Hold(h))
	}
	return list
}

// Reason is why something of that title is left as it is. The end of the hold is an event.
func Reason(title string, h *catalog.Hold) *reason.Error {
	until := time.Unix(h.Until, 0)
	why := h.Owner + " until " + until.UTC().Format(time.RFC3339)
	if h.Reason != "" {
		why += ": " + h.Reason
	}
	return &reason.Error{Code: reason.ResourceHeld, Doing: "change " + title, Cause: errors.New(why), After: max(time.Until(until), 0) + time.Second,
		Hint: "tako resume, or tako-agent resume on the host, ends the hold early"}
}
