package edition

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/miekg/dns"

	"tako.dev/tako/declare/workload"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/names"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/wire"
	"tako.dev/tako/internal/trust"
)

const cluster = trust.ClusterID("a-cluster")

var now = time.Unix(1_800_000_000, 0)

func keysOf(keys ...*trust.SigningKey) func(time.Time) catalog.Keys {
	return func(time.Time) (all catalog.Keys) {
		for _, k := range keys {
			all = append(all, k.Public())
		}
		return all
	}
}

func newStore(key *trust.SigningKey) *Store {
	return New(Options{Cluster: cluster, Keys: keysOf(key)})
}

func instance(slot int, port uint16) Row {
	return InstanceRow(&names.Instance{Namespace: "prod", Workload: "web", Name: fmt.Sprintf("web-%d", slot), Index: int32(slot), Node: "n1", Revision: "web-1",
		Addresses: []netip.Addr{netip.AddrFrom4([4]byte{10, 0, byte(slot >> 8), byte(slot)})},
		Endpoints: []names.Endpoint{{Port: names.Port{Name: "http", Protocol: workload.TCP}, Number: port, Text: map[string]string{"path": "/"}}}})
}

func publish(t testing.TB, s *Store, key *trust.SigningKey, number uint64, put []Row, gone ...string) {
	t.Helper()
	if err := s.Publish(Draft{Mark: wire.NamesMark{Epoch: 1, Term: 7, Number: number}, Issued: now, Put: put, Gone: gone}, key); err != nil {
		t.Fatal(err)
	}
}

// follow takes over what another Store has.
func follow(t testing.TB, from, to *Store, index *names.Index) *names.Index {
	t.Helper()
	parts, _, _ := from.After(to.Mark())
	for i := range parts {
		data, err := wire.Encode(&parts[i])
		if err != nil {
			t.Fatal(err)
		}
		var part wire.Names
		if err := wire.Decode(data, &part); err != nil {
			t.Fatal(err)
		}
		news, err := to.Take(&part, now)
		if err != nil || (news != nil) != (i == len(parts)-1) {
			t.Fatalf("part %d of %d: %v, %v", i+1, len(parts), news, err)
		}
		if news != nil {
			var errs []error
			if index, errs = news.Index(index); len(errs) > 0 {
				t.Fatal(errs)
			}
		}
	}
	return index
}

// TestFollow: whoever takes over some editions and leaves out others comes to the rows of the newest, and so does its index.
func TestFollow(t *testing.T) {
	key, random := trust.NewSigningKey(), rand.New(rand.NewPCG(1, 2))
	leader := newStore(key)
	model := map[string]Row{}
	type follower struct {
		*Store
		index *names.Index
	}
	var all []*follower
	for range 4 {
		x, err := names.New(names.Options{})
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, &follower{newStore(key), x})
	}
	for number := uint64(1); number <= 300; number++ {
		var put []Row
		var gone []string
		touched := map[int]bool{}
		for range random.IntN(20) {
			slot := random.IntN(100)
			if touched[slot] {
				continue
			}
			touched[slot] = true
			row := instance(slot, uint16(1+random.IntN(3)))
			if _, there := model[row.Key]; there && random.IntN(2) == 0 {
				gone = append(gone, row.Key)
				delete(model, row.Key)
			} else {
				put, model[row.Key] = append(put, row), row
			}
		}
		publish(t, leader, key, number, put, gone...)
		for k, f := range all {
			source := leader
			if k == 3 {
				source = all[0].Store // as behind a relay
			}
			if random.IntN(1<<k) > 0 && number < 300 && k != 3 {
				continue
			}
			f.index = follow(t, source, f.Store, f.index)
		}
	}
	for k, f := range all {
		if f.Mark() != leader.Mark() {
			t.Errorf("follower %d is at %+v", k, f.Mark())
		}
		if keys := f.Keys(); len(keys) != len(model) {
			t.Errorf("follower %d has %d rows of %d", k, len(keys), len(model))
		}
		for key, want := range model {
			if row, there := f.Get(key); !there || !reflect.DeepEqual(row, want) {
				t.Errorf("follower %d has %+v, want %+v", k, row, want)
			}
		}
		reply := f.index.Answer(dns.Question{Name: "_http._tcp.web.prod.tako.internal.", Qtype: dns.TypeSRV, Qclass: dns.ClassINET}, 0)
		if reply.Ready != len(model) || f.index.Version() != 300 {
			t.Errorf("the index of follower %d has %d ready, want %d, version %d", k, reply.Ready, len(model), f.index.Version())
		}
	}
}

// TestWay: who is a little behind gets what has changed, and who is far behind all rows, in parts that fit a message.
func TestWay(t *testing.T) {
	key := trust.NewSigningKey()
	s := newStore(key)
	var many []Row
	for slot := range 10_000 {
		many = append(many, instance(slot, 80))
	}
	publish(t, s, key, 1, many)
	first := s.Mark()
	publish(t, s, key, 2, []Row{instance(1, 81)}, many[2].Key)
	publish(t, s, key, 3, []Row{instance(2, 82)}, many[1].Key)
	parts, mark, changed := s.After(first)
	if len(parts) != 1 || len(parts[0].Rows) != 1 || len(parts[0].Gone) != 1 || parts[0].Gone[0] != many[1].Key || mark != s.Mark() {
		t.Errorf("two changes lead on by %d parts, the first with %d rows, %v gone", len(parts), len(parts[0].Rows), parts[0].Gone)
	}
	if none, _, _ := s.After(mark); none != nil {
		t.Errorf("who has it gets %d parts", len(none))
	}
	parts, _, _ = s.After(wire.NamesMark{})
	for i := range parts {
		if err := parts[i].Validate(); err != nil {
			t.Error(err)
		}
		if data, err := wire.Encode(&parts[i]); err != nil || len(data) > wire.FrameMax {
			t.Errorf("part %d has %d bytes, %v", i, len(data), err)
		}
		if (len(parts[i].Edition) > 0) != (i == len(parts)-1) {
			t.Errorf("part %d of %d has an edition: %v", i, len(parts), len(parts[i].Edition) > 0)
		}
	}
	if len(parts) < 3 {
		t.Errorf("10,000 rows come in %d parts", len(parts))
	}
	x, err := names.New(names.Options{})
	if err != nil {
		t.Fatal(err)
	}
	follow(t, s, newStore(key), x)
	select {
	case <-changed:
		t.Error("nothing has changed since")
	default:
	}
	publish(t, s, key, 4, nil)
	select {
	case <-changed:
	default:
		t.Error("who waits is not told")
	}
	for number := uint64(5); number < stepsMax+10; number++ {
		publish(t, s, key, number, nil)
	}
	if parts, _, _ := s.After(first); parts[0].From != (wire.NamesMark{}) || len(s.steps) > stepsMax {
		t.Errorf("%d steps are kept, and a way begins at %+v", len(s.steps), parts[0].From)
	}
}

// TestNotBelieved: what is not signed as it should be, or does not come to what is signed, changes nothing, and what is right is taken afterwards.
func TestNotBelieved(t *testing.T) {
	key := trust.NewSigningKey()
	leader := newStore(key)
	publish(t, leader, key, 1, []Row{instance(1, 80), instance(2, 80)})
	x, err := names.New(names.Options{})
	if err != nil {
		t.Fatal(err)
	}
	f := newStore(key)
	x = follow(t, leader, f, x)
	first := f.Mark()
	publish(t, leader, key, 2, []Row{instance(3, 80)}, instance(1, 80).Key)
	parts, _, _ := leader.After(first)
	good := parts[0]
	stranger, other := newStore(trust.NewSigningKey()), New(Options{Cluster: "another", Keys: keysOf(key)})
	foreign := trust.NewSigningKey()
	publish(t, stranger, foreign, 3, nil)
	publish(t, other, key, 3, nil)
	later, err := wire.Encode(Row{Key: "i/prod/web-9", Workload: "web"})
	if err != nil {
		t.Fatal(err)
	}
	with := func(change func(*wire.Names)) wire.Names {
		m := good
		m.Rows, m.Gone = slices.Clone(good.Rows), slices.Clone(good.Gone)
		change(&m)
		return m
	}
	for what, one := range map[string]struct {
		part wire.Names
		code reason.Code
	}{
		"a strange key":          {wire.Names{Edition: stranger.signed}, reason.HeadRefused},
		"another cluster":        {wire.Names{Edition: other.signed}, reason.HeadRefused},
		"a row more":             {with(func(m *wire.Names) { m.Rows = append(m.Rows, later) }), reason.TransferWrong},
		"a row twice":            {with(func(m *wire.Names) { m.Rows = append(m.Rows, later, later) }), reason.TransferWrong},
		"a row less":             {with(func(m *wire.Names) { m.Rows = nil }), reason.TransferWrong},
		"nothing gone":           {with(func(m *wire.Names) { m.Gone = nil }), reason.TransferWrong},
		"from elsewhere":         {with(func(m *wire.Names) { m.From.Number = 77 }), reason.TransferWrong},
		"a row of nothing":       {with(func(m *wire.Names) { m.Rows = append(m.Rows, nil) }), reason.StateCorrupt},
		"a row without a key":    {with(func(m *wire.Names) { m.Rows = append(m.Rows, []byte{0xa0}) }), reason.StateCorrupt},
		"an edition of nothing":  {with(func(m *wire.Names) { m.Edition = []byte{0x80} }), reason.StateCorrupt},
		"too large an edition":   {with(func(m *wire.Names) { m.Edition = make([]byte, wire.EditionMax+1) }), reason.TransferWrong},
		"gone where nothing was": {with(func(m *wire.Names) { m.From = wire.NamesMark{} }), reason.TransferWrong},
	} {
		if news, err := f.Take(&one.part, now); news != nil || !reason.Is(err, one.code) {
			t.Errorf("%s: %+v, %v", what, news, err)
		}
		if f.Mark() != first || f.rows.root() != f.edition.Root {
			t.Fatalf("%s has changed it", what)
		}
	}
	follow(t, leader, f, x)
	if f.Mark() != leader.Mark() {
		t.Errorf("it is at %+v", f.Mark())
	}
	old := newStore(key)
	publish(t, old, key, 1, nil)
	parts, _, _ = old.After(wire.NamesMark{})
	if news, err := f.Take(&parts[0], now); err != nil || len(news.Put)+len(news.Gone) > 0 || f.Mark() != leader.Mark() {
		t.Errorf("an earlier edition: %+v, %v", news, err)
	}
	if err := leader.Publish(Draft{Mark: first, Issued: now}, key); !reason.Is(err, reason.InternalFault) {
		t.Errorf("an earlier edition is published: %v", err)
	}
}

// TestMarks: another epoch counts for more than a term, and that for more than a number.
func TestMarks(t *testing.T) {
	ordered := []wire.NamesMark{{}, {Epoch: 1, Number: 9}, {Epoch: 1, Term: 1}, {Epoch: 1, Term: 1, Number: 1}, {Epoch: 1, Term: 2}, {Epoch: 2}}
	if !slices.IsSortedFunc(ordered, wire.NamesMark.Compare) {
		t.Error("they are not in order")
	}
}

// TestFile: what was written is read again as it was; a file that is damaged anywhere is not believed.
func TestFile(t *testing.T) {
	key := trust.NewSigningKey()
	s := newStore(key)
	publish(t, s, key, 1, []Row{NamespaceRow("prod"), WorkloadRow(names.Workload{Namespace: "prod", Name: "web", Ports: []names.Port{{Name: "http"}}}), instance(1, 80),
		NodeRow(names.Node{Name: "n1.example", Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.1")}}), {Key: "x/of/a/later/version"}})
	var b bytes.Buffer
	if err := s.Write(&b); err != nil {
		t.Fatal(err)
	}
	again := newStore(key)
	news, err := again.Read(bytes.NewReader(b.Bytes()), now)
	if err != nil || news == nil || again.Mark() != s.Mark() || len(news.Put) != 5 {
		t.Fatalf("%+v, %v", news, err)
	}
	x, err := names.New(names.Options{})
	if err != nil {
		t.Fatal(err)
	}
	x, errs := news.Index(x)
	for name, qtype := range map[string]uint16{"web-1.web.prod.tako.internal.": dns.TypeA, "n1.example.node.tako.internal.": dns.TypeA, "web-1._http._tcp.prod.tako.internal.": dns.TypeTXT, "prod.tako.internal.": dns.TypeSOA} {
		if r := x.Answer(dns.Question{Name: name, Qtype: qtype, Qclass: dns.ClassINET}, 0); len(r.Answer) != 1 || len(errs) > 0 {
			t.Errorf("%s: %+v, %v", name, r, errs)
		}
	}
	for i := range b.Bytes() {
		data := bytes.Clone(b.Bytes())
		data[i] ^= 0x10
		damaged := newStore(key)
		if news, err := damaged.Read(bytes.NewReader(data), now); err == nil && news != nil && damaged.Edition() != s.Edition() {
			t.Fatalf("byte %d is another one, and something else is believed", i)
		}
		if news, err := newStore(key).Read(bytes.NewReader(b.Bytes()[:i]), now); err == nil && news != nil {
			t.Fatalf("cut at byte %d it is believed", i)
		}
	}
}

// TestKeep: whoever starts again has what was there before; what is damaged is told, and is as if it were not there.
func TestKeep(t *testing.T) {
	key, path := trust.NewSigningKey(), filepath.Join(t.TempDir(), "names")
	s := newStore(key)
	if news, err := s.Load(path, now); news != nil || err != nil {
		t.Errorf("nothing was kept: %+v, %v", news, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	kept := make(chan struct{})
	go func() {
		defer close(kept)
		s.Keep(ctx, path, func(err error) { t.Error(err) })
	}()
	publish(t, s, key, 1, []Row{instance(1, 80)})
	publish(t, s, key, 2, []Row{instance(2, 80)})
	cancel()
	<-kept
	again := newStore(key)
	if news, err := again.Load(path, now); err != nil || len(news.Put) != 2 || again.Mark() != s.Mark() {
		t.Errorf("%+v, %v", news, err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	data[len(data)-1] ^= 1
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	if news, err := newStore(key).Load(path, now); news != nil || !reason.Is(err, reason.StateCorrupt) {
		t.Errorf("damaged: %+v, %v", news, err)
	}
}

// TestSince: who looks from time to time has what is there, whether the Store still knows what has changed or not, whoever made the edition.
func TestSince(t *testing.T) {
	key := trust.NewSigningKey()
	s := newStore(key)
	news, changed, err := s.Since(wire.NamesMark{})
	if news != nil || err != nil {
		t.Fatalf("of nothing: %+v, %v", news, err)
	}
	publish(t, s, key, 1, []Row{instance(1, 80), instance(2, 80)})
	select {
	case <-changed:
	default:
		t.Error("nobody is told of the first edition")
	}
	publish(t, s, key, 2, []Row{instance(3, 80)}, instance(1, 80).Key)
	for _, c := range []struct {
		what      string
		store     *Store
		have      wire.NamesMark
		put, gone int
		all, none bool
	}{
		{what: "everything", store: s, put: 2, all: true},
		{what: "one step", store: s, have: wire.NamesMark{Epoch: 1, Term: 7, Number: 1}, put: 1, gone: 1},
		{what: "an edition that is not known", store: s, have: wire.NamesMark{Epoch: 1}, put: 2, all: true},
		{what: "the newest", store: s, have: s.Mark(), none: true},
	} {
		news, _, err := c.store.Since(c.have)
		if err != nil || (news == nil) != c.none {
			t.Errorf("%s: %+v, %v", c.what, news, err)
			continue
		}
		if news != nil && (len(news.Put) != c.put || len(news.Gone) != c.gone || news.All != c.all || news.Mark != s.Mark()) {
			t.Errorf("%s: %+v", c.what, news)
		}
	}
}

// FuzzTake: whatever comes, a Store has what is signed or what it had.
func FuzzTake(f *testing.F) {
	key := trust.NewSigningKey()
	s := newStore(key)
	publish(f, s, key, 1, []Row{instance(1, 80)})
	parts, _, _ := s.After(wire.NamesMark{})
	parts = append(parts, wire.Names{From: wire.NamesMark{Epoch: 1}, Gone: []string{"i/prod/web-1"}}, wire.Names{Rows: [][]byte{{0xa1, 1, 0x61, 'z'}}}, wire.Names{Edition: []byte{0x82, 0x40, 0x40}})
	for i := range parts {
		data, err := wire.Encode(&parts[i])
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var m wire.Names
		if wire.Decode(data, &m) != nil {
			return
		}
		to := newStore(key)
		publish(t, to, key, 1, []Row{instance(2, 80)})
		was := slices.Sorted(maps.Keys(rowsOf(to)))
		if news, err := to.Take(&m, now); err == nil && news != nil && to.Mark().Number != 1 {
			t.Errorf("%+v is believed", m)
		}
		if is := slices.Sorted(maps.Keys(rowsOf(to))); !slices.Equal(is, was) || to.rows.root() != to.edition.Root {
			t.Errorf("it had %v and has %v", was, is)
		}
		x, err := names.New(names.Options{})
		if err != nil {
			t.Fatal(err)
		}
		for _, body := range m.Rows {
			if row, err := decodeRow(body); err == nil {
				_, _ = (&News{Put: []Row{row}, Gone: m.Gone}).Index(x) // whatever it says, it may not panic
			}
		}
	})
}

func rowsOf(s *Store) map[string]bool {
	all := map[string]bool{}
	for _, key := range s.Keys() {
		all[key] = true
	}
	return all
}
