package core

import (
	"fmt"
	"iter"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/reason"
)

// The blast guard lets go what anybody may do by the way: up to half of what a host has, since who moves a host or drops a config
// means that, and a handful however little it has.
const (
	deletedShareMax = 50 // percent
	deletedMax      = 5
)

// Guard says why a state must wait for consent: it deletes too much of what the host has. consent is how many percent of that may be
// deleted at once. It is nil where the state may be taken.
func Guard(have, want iter.Seq[declare.Claim], consent uint8) *reason.Error {
	stays := map[declare.Claim]bool{}
	for c := range want {
		stays[c] = true
	}
	all, deleted, first := 0, 0, declare.Claim{}
	for c := range have {
		all++
		if stays[c] {
			continue
		}
		if deleted++; deleted == 1 {
			first = c
		}
	}
	return withheld(deleted, all, "resources", first.String(), consent)
}

// GuardData is Guard of what is delivered and not acted upon, which is judged by itself: beside a million values, all that a host acts upon
// would be a handful. example is the claim of one of what is deleted.
func GuardData(all, deleted int, example string, consent uint8) *reason.Error {
	return withheld(deleted, all, "values of data", example, consent)
}

func withheld(deleted, all int, what, example string, consent uint8) *reason.Error {
	if deleted <= deletedMax || deleted*100 <= all*max(deletedShareMax, int(consent)) {
		return nil
	}
	return &reason.Error{Code: reason.DeletionsWithheld, Doing: "take the new state",
		Cause: fmt.Errorf("it deletes %d of %d %s, %s among them", deleted, all, what, example),
		Hint:  "if that is meant so, `tako resume node/NAME` lets it come"}
}

// deathsMax is how often the agent may die on its way to a state before that is taken for the reason. Once and twice may be chance:
// a power cut, and another while the host is looked at.
const deathsMax = 3

// Trial is what is known of the state that the agent is on its way to. It is made durable before each step that it tells of, so that
// who finds it after a death knows what the agent died of. The zero value is of no state.
type Trial struct {
	Epoch   uint64         `cbor:"1,keyasint"`
	Version uint64         `cbor:"2,keyasint"`
	Root    catalog.Digest `cbor:"3,keyasint"`
	Deaths  uint32         `cbor:"4,keyasint,omitempty"` // on the way to it
	Open    bool           `cbor:"5,keyasint,omitempty"` // under way: who finds it so has died
}

// Begin is the trial when the agent sets out for the state of a mark, and whether it may. Where that is refused, the trial remembers it.
func (t Trial) Begin(m catalog.Mark) (Trial, *reason.Error) {
	next := Trial{Epoch: m.Epoch, Version: m.Version, Root: m.Root, Open: true}
	if t.Epoch == m.Epoch && t.Version == m.Version && t.Root == m.Root {
		next.Deaths = t.Deaths
		if t.Open {
			next.Deaths++
		}
	}
	if next.Deaths < deathsMax {
		return next, nil
	}
	next.Open = false
	return next, &reason.Error{Code: reason.StateQuarantined, Doing: fmt.Sprintf("take version %d", m.Version),
		Cause: fmt.Errorf("the agent has died %d times on its way to it", next.Deaths), Hint: "`journalctl -u tako-agent` shows how; the next state is taken again"}
}

// Beside is the trial of what was enforced when the agent may have died on its way to another state: a death is blamed on one, and on the way is
// where it was. Where the other one is not to blame the agent dies without it, too, and that is counted then.
func (t Trial) Beside(coming Trial) Trial {
	if coming.Open && (coming.Epoch != t.Epoch || coming.Version != t.Version || coming.Root != t.Root) {
		t.Open = false
	}
	return t
}

// Died is the trial when a run has found it: a death is counted once, also where the next one comes before the agent sets out again.
func (t Trial) Died() Trial {
	if t.Open {
		t.Deaths, t.Open = t.Deaths+1, false
	}
	return t
}

// Settle is the trial when the state has been reached: nothing that happens later is its fault.
func (t Trial) Settle() Trial { return Trial{Epoch: t.Epoch, Version: t.Version, Root: t.Root} }

// End is the trial when the agent ends because it was told to, which is no death.
func (t Trial) End() Trial {
	t.Open = false
	return t
}
