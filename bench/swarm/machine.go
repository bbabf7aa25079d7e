package swarm

import (
	"errors"
	"time"

	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/transfer/core"
	"tako.dev/tako/internal/transfer/wire"
)

// step feeds the machine with an event, and with what becomes of its effects.
func (h *host) step(e core.Event) {
	for e != nil {
		e = h.perform(h.machine.Step(time.Now(), e))
	}
}

// perform does effects, and returns the answer to the last one; nil when there is none, or it comes later.
func (h *host) perform(effects []core.Effect) core.Event {
	for _, e := range effects {
		answer, err := h.do(e)
		if err != nil {
			h.tally.fail(err)
			return core.Stored{Err: err}
		}
		if answer != nil {
			return answer
		}
	}
	return nil
}

// do does one effect. Its answer is nil when it has none, or it comes later; its error is that of what stores.
func (h *host) do(e core.Effect) (core.Event, error) {
	switch e := e.(type) {
	case core.Accept:
		return core.Stored{}, h.store.Accept(e.Mark, e.Signed)
	case core.PutList:
		return core.Stored{}, h.store.PutList(e.Encoded)
	case core.Begin:
		staged, err := h.store.Begin(e.Fetch)
		return core.Stored{Staged: staged}, err
	case core.Commit:
		return core.Stored{}, h.store.Commit(e.Target)
	case core.Append:
		return nil, h.store.Append(e.Changes)
	case core.Settle:
		return core.Stored{}, nil // Append returns when it is done
	case core.Drop:
		return nil, h.store.Drop()
	case core.Prolong:
		return nil, h.store.Accept(e.Mark, e.Signed)
	case core.Remember:
		return nil, h.store.Remember(e.Verdict)
	case core.Count:
		return nil, h.store.Count(e.Refused)
	case core.Activate:
		h.state, h.acts = e.State, time.Now().Add(work)
		return core.Judged{Verdict: wire.Verdict{Type: wire.Pending}}, nil
	case core.Sync:
		h.tally.syncs.Add(1)
		return h.ask(&call{kind: syncing, id: e.ID}, wire.PathSync, e.Request), nil
	case core.Nodes:
		if e.Request.Layer == wire.CatalogLayer && h.list != nil && catalog.ListRoot(h.list) == e.Request.Hashes[0] {
			return core.NodesCame{ID: e.ID, Reply: wire.NodesReply{Items: [][]byte{h.list}}}, nil
		}
		h.tally.nodes.Add(1)
		return h.ask(&call{kind: asking, id: e.ID}, wire.PathNodes, e.Request), nil
	case core.Cancel:
		h.cancel(e.ID)
	case core.Tell:
		h.report.lazy(time.Now())
	case core.Disbelieve:
		h.tally.fail(e.Err)
	case core.Alarm:
		h.tally.fail(e.Err)
	}
	return nil, nil
}

// ask opens a call for the machine. The answer comes later, but for that there is nobody to ask.
func (h *host) ask(c *call, path string, request any) core.Event {
	err := errors.New("there is no connection")
	if h.line != nil {
		_, err = h.call(c, path, request)
	}
	if err != nil {
		return core.Failed{ID: c.id, Err: err}
	}
	return nil
}

func (h *host) cancel(id uint64) {
	if h.line == nil {
		return
	}
	for stream, c := range h.line.calls {
		if c.id == id && (c.kind == syncing || c.kind == asking) {
			delete(h.line.calls, stream)
			_ = h.line.cancel(stream) // a connection that has ended is found when it is read
		}
	}
}
