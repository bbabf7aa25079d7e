package held

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/core"
	"tako.dev/tako/internal/transfer/wire"
	"tako.dev/tako/internal/trust"
)

// headOf is a signed head of a version, and its mark.
func headOf(t *testing.T, version uint64) (catalog.Mark, []byte) {
	t.Helper()
	root := catalog.Digest{byte(version)}
	s, err := catalog.Head{Cluster: trust.NewClusterID(), Node: "web-1", UID: "u", Epoch: 1, Version: version, Issued: 1, Expires: 2,
		Roots: []catalog.FormatRoot{{Format: catalog.FormatV1, Root: root}}}.Sign(trust.NewSigningKey())
	must(t, err)
	b, err := s.Encode()
	must(t, err)
	return catalog.Mark{Epoch: 1, Version: version, Root: root, Issued: 1, Expires: 2}, b
}

// TestGroundIsKept: while the newest head is refused, the head of what is enforced is known, over a restart, and so is that of what was
// before.
func TestGroundIsKept(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	ground := func(what string, want []byte, root catalog.Digest) {
		t.Helper()
		must(t, s.Close())
		s = open(t, dir)
		k, err := s.Kept()
		must(t, err)
		if string(k.Ground) != string(want) {
			t.Errorf("%s: the ground is %x", what, k.Ground)
		}
		if s.Ground() != root {
			t.Errorf("%s: its root is %s", what, s.Ground())
		}
	}
	one, first := headOf(t, 1)
	two, second := headOf(t, 2)
	must(t, s.Accept(one, first))
	ordered := one
	ordered.Root = catalog.Digest{0xaa} // with a statement in it
	must(t, s.SetLife(Life{Starts: 1, Enforced: ordered, Settled: true}))
	ground("the newest is enforced", nil, one.Root)
	must(t, s.Accept(two, second))
	ground("the newest is refused", first, one.Root)
	must(t, s.SetLife(s.Life().On(two, Trial{})))
	ground("the newest is enforced again", nil, two.Root)
	life := s.Life()
	if life.Before != ordered {
		t.Fatalf("before was %+v", life.Before)
	}
	life.Enforced, life.Before = life.Before, catalog.Mark{}
	must(t, s.SetLife(life))
	ground("it was given up for the one before", first, one.Root)
	must(t, s.Close())
}

// TestVerdictOnAStatement: a verdict on a state that was new for a statement is the statement's; any other one the head's.
func TestVerdictOnAStatement(t *testing.T) {
	s := open(t, t.TempDir())
	mark, head := headOf(t, 3)
	must(t, s.Accept(mark, head))
	state := mark
	state.Root = catalog.Digest{0xbb}
	must(t, s.SetStatements([]core.Statement{{Layer: "a", Epoch: 1, Number: 4, InForce: []byte("new"), Before: []byte("old"), Open: true, State: state}}))
	if m, took := s.Took(state.Root, Trial{}, true); !took || m != state {
		t.Errorf("it took %+v", m)
	}
	if m, took := s.Took(mark.Root, Trial{}, false); !took || m != mark {
		t.Errorf("of the head it took %+v", m)
	}
	if _, took := s.Took(mark.Root, Trial{}, true); took {
		t.Error("it took a head that is refused")
	}
	other := catalog.Digest{0xcc}
	if m, took := s.Took(other, Trial{Epoch: 1, Version: 3, Root: other}, false); !took || m.Version != 3 || m.Root != other {
		t.Errorf("with statements in force it took %+v", m)
	}
	v := wire.Verdict{Type: wire.Quarantined, Epoch: 1, Version: 3, Root: state.Root, Code: reason.StateQuarantined}
	if !s.Blames(v) {
		t.Error("the statement is not to blame")
	}
	must(t, s.Remember(v))
	k, err := s.Kept()
	must(t, err)
	if x := k.Statements[0]; string(x.InForce) != "old" || x.Before != nil || x.Open || x.Verdict != v || k.Verdict.Type != wire.Pending {
		t.Errorf("kept is %+v, and of the head %+v", x, k.Verdict)
	}
	// With the head as what was new, or once more, it is the head's.
	must(t, s.SetLife(Life{Starts: 1, Enforced: state}))
	must(t, s.Remember(v))
	if k, err = s.Kept(); err != nil || k.Verdict.Type != wire.Quarantined || k.Verdict.Root != mark.Root {
		t.Errorf("of the head: %+v, %v", k.Verdict, err)
	}
	must(t, s.Close())
}

// TestStatementsThatAreDamaged: both copies gone is told, and the host goes on.
func TestStatementsThatAreDamaged(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	must(t, s.SetStatements([]core.Statement{{Layer: "a", Epoch: 1, Number: 4}}))
	must(t, s.Close())
	must(t, os.WriteFile(filepath.Join(dir, statementsName), []byte("nothing"), 0o600))
	s = open(t, dir)
	if k, err := s.Kept(); err != nil || len(k.Statements) > 0 || len(s.Troubles()) != 1 {
		t.Errorf("%v: kept is %+v, troubles %v", err, k, s.Troubles())
	}
	must(t, s.SetStatements([]core.Statement{{Layer: "a", Epoch: 1, Number: 1}}))
	must(t, s.Close())
	_, err := Open(dir, time.Now())
	must(t, err)
}
