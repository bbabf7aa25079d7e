package server

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/transfer/snapshots"
	"tako.dev/tako/internal/transfer/wire"
)

// scales are the sizes of layers that are measured, in entries.
var scales = []int{1_000, 100_000, 1_000_000}

const scaledLayer = "NodeConfig/a/scaled"

// scaledRows are the rows of a layer of data.
func scaledRows(tb testing.TB, entries int) []catalog.Row {
	rows := make([]catalog.Row, entries)
	for i := range rows {
		item := scaledItem(tb, i, 0)
		rows[i] = item.Row()
	}
	return rows
}

// scaledItem is an entry in one version, as tako bundle push makes it: a body of 116 bytes, of which 33 cannot be guessed.
func scaledItem(tb testing.TB, i, version int) catalog.Item {
	random := rand.NewChaCha8([32]byte{byte(i), byte(i >> 8), byte(i >> 16), byte(version)})
	value := make([]byte, 33)
	_, _ = random.Read(value) // never fails
	item, err := catalog.DataItem(&declare.Data{Key: fmt.Sprintf("app/item-%07d", i), Value: base64.StdEncoding.EncodeToString(value)})
	if err != nil {
		tb.Fatal(err)
	}
	return item
}

// meter counts the bytes of a connection, as they are on the wire.
type meter struct{ down, up atomic.Int64 }

type metered struct {
	net.Conn
	*meter
}

func (m metered) Read(b []byte) (int, error) {
	n, err := m.Conn.Read(b)
	m.down.Add(int64(n))
	return n, err
}

func (m metered) Write(b []byte) (int, error) {
	n, err := m.Conn.Write(b)
	m.up.Add(int64(n))
	return n, err
}

// metered makes a client of a node whose bytes are counted.
func (r *rig) metered(name string) (*host, *meter) {
	r.t.Helper()
	m := &meter{}
	h := r.as(name)
	transport := h.Client.Transport.(*http.Transport)
	transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		raw, err := (&net.Dialer{}).DialContext(ctx, network, address)
		return metered{raw, m}, err
	}
	return h, m
}

// scaled is a server with a layer at two roots, and a node whose head has the second.
type scaled struct {
	*rig
	base, target catalog.Trie
	head         []byte
	host         *host
	meter        *meter
}

// newScaled makes the second root out of the first by changing so many entries, or by deleting one where that is 0.
func newScaled(b *testing.B, entries, changes int, kept *snapshots.Store) *scaled {
	s := &scaled{rig: newRig(b, func(o *Options) {
		o.Snapshots = kept
		o.Limits.NodeCalls, o.Limits.NodeFetches, o.Limits.IndexRows = 1_000_000, 1_000_000, 2_000_000
	})}
	rows, bodies := scaledRows(b, entries), map[catalog.Digest][]byte{}
	s.base = catalog.Build(slices.Clone(rows))
	for i := range changes {
		at := i * (entries / changes)
		item := scaledItem(b, at, 1)
		rows[at] = item.Row()
		bodies[rows[at].Digest] = item.Body
	}
	if changes == 0 {
		rows = slices.Delete(rows, entries/2, entries/2+1)
	}
	s.target = catalog.Build(rows)
	body := func(d catalog.Digest) ([]byte, bool) { t, found := bodies[d]; return t, found }
	s.serve(s.base, body)
	s.serve(s.target, body)
	return s
}

// serve has the server know a root, and the head name it.
func (s *scaled) serve(t catalog.Trie, body func(catalog.Digest) ([]byte, bool)) {
	s.change(func() {
		if s.layers[scaledLayer] == nil {
			s.layers[scaledLayer] = map[catalog.Digest]Layer{}
		}
		s.layers[scaledLayer][t.Root()] = Layer{Trie: t, Body: body}
	})
	if s.host == nil {
		s.host, s.meter = s.metered("web-1")
		s.add("web-1")
	}
	s.head = s.rig.head(s.nodes["web-1"].id, 1, listOf(s.t, catalog.Layer{Priority: 5, ID: scaledLayer, Root: t.Root()}))
	s.give("web-1", s.head)
}

// fetch makes one sync, and drops what comes.
func (s *scaled) fetch(base catalog.Digest) {
	resp, err := s.host.post(s.t.Context(), wire.PathSync, encode(s.t, wire.SyncRequest{Head: s.head, Layer: scaledLayer, Base: base, Target: s.target.Root()}))
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		s.t.Fatalf("%+v", problemOf(s.t, resp))
	}
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		s.t.Fatal(err)
	}
}

// measured reports what a loop has cost: bytes on the wire with what TLS and HTTP/2 add, and CPU time of the server with that of reading.
func (s *scaled) measured(b *testing.B, once func()) {
	once() // the connection is there, and what the server indexes it has indexed
	down, up, cpu := s.meter.down.Load(), s.meter.up.Load(), processTime(b)
	for b.Loop() {
		once()
	}
	n := float64(b.N)
	b.ReportMetric(float64(s.meter.down.Load()-down)/n, "down-B")
	b.ReportMetric(float64(s.meter.up.Load()-up)/n, "up-B")
	b.ReportMetric((processTime(b)-cpu)*1000/n, "cpu-ms")
}

// processTime is the CPU time of this process, in seconds.
func processTime(b *testing.B) float64 {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}

// BenchmarkDelta is a difference of a layer that the host has at another root: one entry deleted, one changed, 1,000 changed.
func BenchmarkDelta(b *testing.B) {
	for _, entries := range scales {
		for _, changes := range []int{0, 1, 1000} {
			b.Run(fmt.Sprintf("entries=%d/changes=%d", entries, changes), func(b *testing.B) {
				s := newScaled(b, entries, changes, nil)
				s.measured(b, func() { s.fetch(s.base.Root()) })
			})
		}
	}
}

// BenchmarkDescent is the same of a host that finds its way by hashes, because the server does not know the root that it has: one deleted.
func BenchmarkDescent(b *testing.B) {
	for _, entries := range scales {
		b.Run(fmt.Sprintf("entries=%d", entries), func(b *testing.B) {
			s := newScaled(b, entries, 0, nil)
			known, rounds := s.base, 0
			s.measured(b, func() {
				rounds = 0
				d := catalog.NewDescent(s.target.Root(), known, entries)
				for wanted := d.Wanted(wire.HashesMax); len(wanted) > 0; wanted = d.Wanted(wire.HashesMax) {
					var reply wire.NodesReply
					if status, problem := s.host.call(wire.PathNodes, wire.NodesRequest{Head: s.head, Layer: scaledLayer, Hashes: wanted}, &reply); status != http.StatusOK {
						b.Fatal(problem)
					}
					for _, item := range reply.Items {
						if err := d.Take(item); err != nil {
							b.Fatal(err)
						}
					}
					rounds++
				}
			})
			b.ReportMetric(float64(rounds), "rounds")
		})
	}
}

// BenchmarkNothing is a host that reconnects and has everything: the watch and its head, over a connection of its own.
func BenchmarkNothing(b *testing.B) {
	r := newRig(b, func(o *Options) {
		o.Limits.NodeConnections, o.Limits.NodeCalls, o.Limits.Accepts = 1000, 1_000_000, 1_000_000
	})
	head := r.head(r.add("web-1"), 1, listOf(b, catalog.Layer{Priority: 5, ID: scaledLayer, Root: catalog.KeyOf("x")}))
	r.give("web-1", head)
	cert := r.ca.client(b, "web-1", 0, x509.ExtKeyUsageClientAuth)
	m := &meter{}
	body := encode(b, wire.WatchRequest{Protocol: wire.Protocol})
	for b.Loop() {
		var protocols http.Protocols
		protocols.SetHTTP2(true)
		transport := &http.Transport{
			Protocols: &protocols, TLSClientConfig: &tls.Config{RootCAs: r.pool(), ServerName: "localhost", MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{*cert}},
			DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
				raw, err := (&net.Dialer{}).DialContext(ctx, network, address)
				return metered{raw, m}, err
			},
		}
		h := &host{&http.Client{Transport: transport}, r}
		ctx, cancel := context.WithCancel(b.Context())
		resp, err := h.post(ctx, wire.PathWatch, body)
		if err != nil {
			b.Fatal(err)
		}
		var f wire.Frame
		if err := wire.ReadFrame(resp.Body, &f); err != nil || len(f.Head) == 0 {
			b.Fatal(f, err)
		}
		cancel()
		_ = resp.Body.Close()
		transport.CloseIdleConnections()
	}
	b.ReportMetric(float64(m.down.Load())/float64(b.N), "down-B")
	b.ReportMetric(float64(m.up.Load())/float64(b.N), "up-B")
}

// BenchmarkSnapshot is a host that has nothing: the first one of a layer, and one that comes after it.
func BenchmarkSnapshot(b *testing.B) {
	for _, entries := range scales {
		for _, kept := range []bool{false, true} {
			b.Run(fmt.Sprintf("entries=%d/kept=%t", entries, kept), func(b *testing.B) { snapshot(b, entries, kept) })
		}
	}
}

func snapshot(b *testing.B, entries int, kept bool) {
	var store *snapshots.Store
	if kept {
		store = keeping(b)
	}
	s := newScaled(b, entries, 1, store)
	bodies := make(map[catalog.Digest][]byte, entries)
	rows := make([]catalog.Row, entries)
	for i := range rows {
		item := scaledItem(b, i, 0)
		rows[i] = item.Row()
		bodies[rows[i].Digest] = item.Body
	}
	s.target = catalog.Build(rows)
	s.serve(s.target, func(d catalog.Digest) ([]byte, bool) { body, found := bodies[d]; return body, found })
	s.measured(b, func() { s.fetch(catalog.Digest{}) })
}

// BenchmarkLayer is what a layer takes of a server's memory, beside its bodies.
func BenchmarkLayer(b *testing.B) {
	for _, entries := range scales {
		b.Run(fmt.Sprintf("entries=%d", entries), func(b *testing.B) {
			rows := scaledRows(b, entries)
			for b.Loop() {
				before := inUse()
				t := catalog.Build(rows)
				b.ReportMetric(float64(inUse()-before)/float64(t.Len()), "B/entry")
			}
		})
	}
}

// BenchmarkCall is a call with a short answer over a connection that is open: of what a small change costs a server, most is calls.
func BenchmarkCall(b *testing.B) {
	s := newScaled(b, 1_000, 1, nil)
	list := listOf(b, catalog.Layer{Priority: 5, ID: scaledLayer, Root: s.target.Root()})
	data, err := list.Encode()
	if err != nil {
		b.Fatal(err)
	}
	for _, call := range []struct {
		path          string
		message, into any
	}{
		{wire.PathStatus, wire.Report{}, &wire.StatusReply{}},
		{wire.PathNodes, wire.NodesRequest{Head: s.head, Layer: wire.CatalogLayer, Hashes: []catalog.Digest{catalog.ListRoot(data)}}, &wire.NodesReply{}},
	} {
		b.Run(call.path, func(b *testing.B) {
			s.measured(b, func() {
				if status, problem := s.host.call(call.path, call.message, call.into); status != http.StatusOK {
					b.Fatal(problem)
				}
			})
		})
	}
}
