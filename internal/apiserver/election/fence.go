package election

import (
	"context"
	"errors"

	clientv3 "go.etcd.io/etcd/client/v3"

	"tako.dev/tako/internal/reason"
)

// termKey is where a context has the term of who works in it.
type termKey struct{}

// withTerm is a context of a leader's work: what is written in it is written only as long as that term is the newest.
func withTerm(ctx context.Context, term int64) context.Context {
	return context.WithValue(ctx, termKey{}, term)
}

// termOf is the term of a context; false where it is nobody's who leads.
func termOf(ctx context.Context) (int64, bool) {
	term, ok := ctx.Value(termKey{}).(int64)
	return term, ok
}

// Check refuses what is about to be written in a context that is no leader's. The error is LeadLost.
func Check(ctx context.Context, doing string) error {
	if _, leads := termOf(ctx); leads {
		return nil
	}
	return &reason.Error{Code: reason.LeadLost, Doing: doing, Cause: errors.New("it does not say in which term")}
}

// Fence is a way to read and write over which a leader's transactions are refused that is none any more; all else goes as it was.
// Objects are written by transactions only. The error is LeadLost.
func Fence(kv clientv3.KV) clientv3.KV { return fenced{kv} }

type fenced struct{ clientv3.KV }

// Txn begins a transaction.
func (f fenced) Txn(ctx context.Context) clientv3.Txn {
	txn := f.KV.Txn(ctx)
	term, leads := termOf(ctx)
	if !leads {
		return txn
	}
	return &fencedTxn{Txn: txn, term: term}
}

// fencedTxn is a transaction of a leader. Why it was not done is read in the same transaction: otherwise who writes would take it for the
// write of somebody else to the same object, and try again.
type fencedTxn struct {
	clientv3.Txn
	term int64
	cmps []clientv3.Cmp
	els  []clientv3.Op
}

// If takes what must be so.
func (t *fencedTxn) If(cs ...clientv3.Cmp) clientv3.Txn {
	t.cmps = append(t.cmps, cs...)
	return t
}

// Then takes what is done if it is.
func (t *fencedTxn) Then(ops ...clientv3.Op) clientv3.Txn {
	t.Txn = t.Txn.If(append(t.cmps, clientv3.Compare(clientv3.ModRevision(leaderKey), "=", t.term))...).Then(ops...)
	t.cmps = nil
	return t
}

// Else takes what is done if it is not.
func (t *fencedTxn) Else(ops ...clientv3.Op) clientv3.Txn {
	t.els = append(t.els, ops...)
	return t
}

// Commit does it. The answer is that of the transaction without the fence.
func (t *fencedTxn) Commit() (*clientv3.TxnResponse, error) {
	resp, err := t.Txn.Else(append(t.els, clientv3.OpGet(leaderKey, clientv3.WithKeysOnly()))...).Commit()
	if err != nil || resp.Succeeded {
		return resp, err
	}
	last := len(resp.Responses) - 1
	if last < 0 {
		return nil, &reason.Error{Code: reason.InternalFault, Doing: "write as the leader", Cause: errors.New("the store has not said why it did not")}
	}
	leader := resp.Responses[last].GetResponseRange().GetKvs()
	if len(leader) != 1 || leader[0].ModRevision != t.term {
		return nil, &reason.Error{Code: reason.LeadLost, Doing: "write as the leader"}
	}
	resp.Responses = resp.Responses[:last]
	return resp, nil
}
