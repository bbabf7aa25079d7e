package git

import (
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
)

// many is a repository with 10,000 small files, over http.
func many(b *testing.B) (*origin, *served, Remote, func()) {
	o := newOrigin(b)
	files := map[string]string{}
	for i := range 10_000 {
		files[fmt.Sprintf("apps/team-%02d/app-%03d.yaml", i/100, i%100)] = fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: app-%d\ndata:\n  text: %s\n", i, strings.Repeat("x", i%200))
	}
	o.commit(files)
	s := &served{next: backend(o)}
	server := httptest.NewServer(s)
	return o, s, Remote{URL: server.URL + "/repo.git", PlainHTTP: true}, server.Close
}

func BenchmarkListNothingNew(b *testing.B) {
	_, s, remote, closeServer := many(b)
	defer closeServer()
	g := newGit(b, Limits{})
	s.bytes.Store(0)
	s.requests.Store(0)
	for b.Loop() {
		if _, err := g.List(b.Context(), remote, Branches); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(s.bytes.Load())/float64(b.N), "wire-B/op")
	b.ReportMetric(float64(s.requests.Load())/float64(b.N), "requests/op")
}

func BenchmarkFetchFirst(b *testing.B) {
	o, s, remote, closeServer := many(b)
	defer closeServer()
	g := newGit(b, Limits{})
	s.bytes.Store(0)
	n := 0
	for b.Loop() {
		n++
		if _, err := g.Repository(fmt.Sprint(n)).Fetch(b.Context(), remote, Ref{ID: o.head()}, nil); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(s.bytes.Load())/float64(b.N), "wire-B/op")
}

func BenchmarkFetchOneChanged(b *testing.B) {
	o, s, remote, closeServer := many(b)
	defer closeServer()
	g := newGit(b, Limits{Packs: 1000})
	r := g.Repository("k")
	fetch := func(id ID) {
		if _, err := r.Fetch(b.Context(), remote, Ref{ID: id}, nil); err != nil {
			b.Fatal(err)
		}
	}
	fetch(o.head())
	s.bytes.Store(0)
	n := 0
	for b.Loop() {
		b.StopTimer()
		n++
		id := o.commit(map[string]string{"apps/team-07/app-007.yaml": fmt.Sprintf("changed: %d\n", n)})
		b.StartTimer()
		fetch(id)
	}
	b.ReportMetric(float64(s.bytes.Load())/float64(b.N), "wire-B/op")
}

func BenchmarkRead(b *testing.B) {
	o, _, remote, closeServer := many(b)
	defer closeServer()
	g := newGit(b, Limits{})
	r, id := g.Repository("k"), o.head()
	if _, err := r.Fetch(b.Context(), remote, Ref{ID: id}, nil); err != nil {
		b.Fatal(err)
	}
	b.Run("list", func(b *testing.B) {
		for b.Loop() {
			if err := r.Tree(b.Context(), Commit{ID: id}, nil, func(*Tree) error { return nil }); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("all", func(b *testing.B) {
		for b.Loop() {
			if n := len(files(b, r, id)); n != 10_000 {
				b.Fatal(n)
			}
		}
	})
}
