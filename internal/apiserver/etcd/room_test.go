package etcd

import (
	"context"
	"errors"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/proxy/grpcproxy/adapter"
	"go.etcd.io/etcd/server/v3/storage/wal"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/endpoints/request"

	"tako.dev/tako/internal/reason"
)

func TestLacks(t *testing.T) {
	plenty := room{bytes: math.MaxInt64, files: math.MaxInt64, reserved: math.MaxInt64}
	with := func(change func(*room)) room {
		r := plenty
		change(&r)
		return r
	}
	for _, c := range []struct {
		name         string
		room         room
		grow, shrink string // what is lacking, as far as it is said
	}{
		{"plenty", plenty, "", ""},
		{"the floor of writes", with(func(r *room) { r.bytes = growBytesMin() }), "", ""},
		{"below it", with(func(r *room) { r.bytes = growBytesMin() - 1 }), "93.0 MiB free, and 93.0 MiB", ""},
		{"the floor of deletions", with(func(r *room) { r.bytes = shrinkBytesMin }), "16.0 MiB free", ""},
		{"below it", with(func(r *room) { r.bytes = shrinkBytesMin - 1 }), "16.0 MiB free", "16.0 MiB free, and 16.0 MiB"},
		{"nothing", with(func(r *room) { r.bytes = 0 }), "0.0 MiB free", "0.0 MiB free"},
		{"files enough", with(func(r *room) { r.files = growFilesMin }), "", ""},
		{"few files", with(func(r *room) { r.files = growFilesMin - 1 }), "63 more files, and 64", ""},
		{"no files", with(func(r *room) { r.files = 0 }), "0 more files, and 64", "0 more files, and 16"},
		{"files without a bound", with(func(r *room) { r.files = -1 }), "", ""},
		{"reserve enough", with(func(r *room) { r.reserved = growReservedMin }), "", ""},
		{"small reserve", with(func(r *room) { r.reserved = growReservedMin - 1 }), "32.0 MiB reserved", ""},
		{"no reserve", with(func(r *room) { r.reserved = -4096 }), "reserved for the database", "reserved for the database, and 4.0 MiB"},
	} {
		for p, want := range map[purpose]string{grow: c.grow, shrink: c.shrink} {
			l, ok := c.room.lacks(p)
			if ok != (want != "") || ok && !strings.Contains(l.String(), want) {
				t.Errorf("%s, purpose %d: lacks %q (%v), want %q", c.name, p, l, ok, want)
			}
		}
	}
}

func TestPurposeOf(t *testing.T) {
	put := clientv3.OpPut("/key", "value")
	deleting := request.WithRequestInfo(t.Context(), &request.RequestInfo{Verb: "delete"})
	clearing := request.WithRequestInfo(t.Context(), &request.RequestInfo{Verb: "deletecollection"})
	updating := request.WithRequestInfo(t.Context(), &request.RequestInfo{Verb: "update"})
	for _, c := range []struct {
		name      string
		ctx       context.Context
		then, els []clientv3.Op
		want      purpose
		writes    bool
	}{
		{"reads", t.Context(), []clientv3.Op{clientv3.OpGet("/key")}, nil, shrink, false},
		{"puts", t.Context(), []clientv3.Op{put}, []clientv3.Op{clientv3.OpGet("/key")}, grow, true},
		{"puts else", t.Context(), nil, []clientv3.Op{put}, grow, true},
		{"deletes", t.Context(), []clientv3.Op{clientv3.OpDelete("/key")}, []clientv3.Op{clientv3.OpGet("/key")}, shrink, true},
		{"deletes and puts", t.Context(), []clientv3.Op{clientv3.OpDelete("/key"), put}, nil, grow, true},
		{"puts the mark of a deletion", deleting, []clientv3.Op{put}, nil, shrink, true},
		{"puts marks of deletions", clearing, []clientv3.Op{put}, nil, shrink, true},
		{"updates", updating, []clientv3.Op{put}, nil, grow, true},
		{"begins to cut history", t.Context(), []clientv3.Op{clientv3.OpPut(compactKey, "7")}, nil, shrink, true},
		{"within", t.Context(), []clientv3.Op{clientv3.OpTxn(nil, []clientv3.Op{put}, nil)}, nil, grow, true},
	} {
		var seen purpose
		asked := false
		g := guard{KVServer: quotaFull{}, full: func() {}, admit: func(_ context.Context, p purpose, _ int) (func(), error) {
			seen, asked = p, true
			return func() {}, nil
		}}
		_, err := clientv3.NewKVFromKVClient(adapter.KvServerToKvClient(g), nil).Txn(c.ctx).Then(c.then...).Else(c.els...).Commit()
		if asked != c.writes || asked && seen != c.want {
			t.Errorf("%s: asked %v for purpose %d; want %v, %d", c.name, asked, seen, c.writes, c.want)
		}
		if reason.Is(err, reason.QuotaExceeded) != c.writes {
			t.Errorf("%s: refused with %v", c.name, err)
		}
	}
}

// quotaFull is an etcd that has reached its quota.
type quotaFull struct{ pb.KVServer }

// Txn is refused.
func (quotaFull) Txn(context.Context, *pb.TxnRequest) (*pb.TxnResponse, error) {
	return nil, rpctypes.ErrGRPCNoSpace
}

// Put is refused.
func (quotaFull) Put(context.Context, *pb.PutRequest) (*pb.PutResponse, error) {
	return nil, rpctypes.ErrGRPCNoSpace
}

// TestRefusals: what a client of the API is told, and when it may ask again.
func TestRefusals(t *testing.T) {
	raw := clientv3.NewKVFromKVClient(adapter.KvServerToKvClient(quotaFull{}), nil)
	others := worded{KV: raw, whose: "etcd at https://a"}
	_, onPut := others.Put(t.Context(), "/key", "value")
	_, onTxn := others.Txn(t.Context()).If().Then(clientv3.OpPut("/key", "value")).Else().Commit()
	for _, c := range []struct {
		err   error
		code  reason.Code
		words []string
	}{
		{noRoom("/data/etcd", lack{of: scarceBytes, has: 5 << 20, needs: 93 << 20}), reason.DiskFull, []string{"/data/etcd", "5.0 MiB free", "93.0 MiB", "make room"}},
		{noSegment("/data/etcd"), reason.DiskFull, []string{"/data/etcd", "log"}},
		{noQuota(ownDatabase, ownCure), reason.QuotaExceeded, []string{"this server", "quota", "delete", "--quota-bytes"}},
		{onPut, reason.QuotaExceeded, []string{"https://a", "quota", "compact", "alarm"}},
		{onTxn, reason.QuotaExceeded, []string{"https://a", "quota", "compact", "alarm"}},
	} {
		var status apierrors.APIStatus
		if !errors.As(c.err, &status) || !reason.Is(c.err, c.code) {
			t.Errorf("%T: %v: want %v, and a status", c.err, c.err, c.code)
			continue
		}
		s := status.Status()
		if s.Code != http.StatusInsufficientStorage || s.Details.RetryAfterSeconds != retrySeconds || string(s.Details.Causes[0].Type) != c.code.String() {
			t.Errorf("%v: status %+v", c.err, s)
		}
		for _, want := range c.words {
			if !strings.Contains(s.Message, want) {
				t.Errorf("%q does not say %q", s.Message, want)
			}
		}
	}
}

// TestSegments: when the log has no next segment and gets none.
func TestSegments(t *testing.T) {
	dir := t.TempDir()
	file := func(name string, size int64) {
		t.Helper()
		path := filepath.Join(dir, name)
		f, err := os.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if err := f.Truncate(size); err != nil {
			t.Fatal(err)
		}
	}
	look := func() segments {
		t.Helper()
		s, err := lookAtLog(dir)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	none := look()
	if none.stuck(none) {
		t.Error("a log that is not there yet is stuck")
	}
	file("0000000000000000-0000000000000000.wal", 4096)
	file("0000000000000001-000000000000002a.wal", wal.SegmentSizeBytes)
	file("1.tmp", 1<<20)
	torn := look()
	if torn.last != "0000000000000001-000000000000002a.wal" || torn.spare || len(torn.torn) != 1 || filepath.Base(torn.torn[0]) != "1.tmp" {
		t.Errorf("torn: %+v", torn)
	}
	if torn.stuck(none) {
		t.Error("stuck at the first look")
	}
	if !torn.stuck(torn) {
		t.Error("not stuck")
	}
	file("0000000000000002-0000000000000100.wal", wal.SegmentSizeBytes)
	if s := look(); s.stuck(torn) {
		t.Error("stuck, though the log has gone on since")
	}
	file("1.tmp", wal.SegmentSizeBytes)
	if s := look(); !s.spare || s.stuck(s) {
		t.Errorf("stuck, though the next segment is there: %+v", s)
	}
}

// TestReserve: a database's file gets room on the disk ahead, and neither its size nor its content changes.
func TestReserve(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	if err := os.WriteFile(path, []byte("content"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := reserve{path: path}
	if left := r.left(4096); left >= 0 {
		t.Errorf("%d bytes are left of nothing", left)
	}
	taken := func() int64 {
		var st syscall.Stat_t
		if err := syscall.Stat(path, &st); err != nil {
			t.Fatal(err)
		}
		return st.Blocks * 512
	}
	if err := r.extend(4096); err != nil {
		t.Fatal(err)
	}
	if r.never {
		t.Skip("needs a file system that allocates ahead, for temporary files")
	}
	if left := r.left(4096); left != reserveBytes {
		t.Errorf("%d bytes are left, want %d", left, reserveBytes)
	}
	first := taken()
	if first < reserveBytes {
		t.Errorf("the file takes %d bytes of the disk", first)
	}
	if err := r.extend(4096 + reserveBytes - growReservedMin); err != nil || taken() != first {
		t.Errorf("extended while there is enough: %v", err)
	}
	if err := r.extend(reserveBytes); err != nil || taken() < 2*reserveBytes {
		t.Errorf("not extended (%v): %d bytes after %d", err, taken(), first)
	}
	if b, err := os.ReadFile(path); err != nil || string(b) != "content" {
		t.Errorf("read %d bytes, %v", len(b), err)
	}
	r.forget()
	if left := r.left(4096); left >= 0 {
		t.Errorf("%d bytes are left in a file that is forgotten", left)
	}
}
