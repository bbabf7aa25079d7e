package relay

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"iter"
	"math"
	"time"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/client"
	transfercore "tako.dev/tako/internal/transfer/core"
	"tako.dev/tako/internal/transfer/relay/core"
	"tako.dev/tako/internal/transfer/server"
	"tako.dev/tako/internal/transfer/wire"
)

// A kept answer to a sync is a file: answerMagic, the kind in a byte, eight of the second since 1970 in which it came, 0 where it was verified here,
// and for each part four bytes of length, four of its CRC-32C, and the part as it goes over the wire; a length of 0 ends it. Numbers have their highest
// byte first.
const (
	answerMagic  = "tako-sync-3"
	answerKind   = len(answerMagic)
	answerCame   = answerKind + 1
	answerHeader = answerCame + 8
	frameHeader  = 8
)

const (
	// syncTime is how long all of a sync may take: a layer at its bounds over a slow line. It is taken up again where it was.
	syncTime = 30 * time.Minute
	// failuresMax is how often in a row a server may say nothing that brings it on.
	failuresMax = 3
	// verifiedMax is of how many entries a snapshot is computed to its root here: 6 MB. Larger ones are verified by the hosts alone.
	verifiedMax = 100_000
	// unverifiedFor is how long an answer is given that was not verified here: for the hosts of one change. A wrong one of a faulty server would
	// otherwise be given for as long as there is room, and each host that gets it blames the relay.
	unverifiedFor = 5 * time.Minute
	// changesMax is how many changes an answer may have: all entries of a layer go, and as many come.
	changesMax = 2 * catalog.EntriesMax
	// bytesSlack is what an answer may have above the bytes that the head names, as on a host.
	bytesSlack = 4 << 20
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// answer is a way that is kept, or comes in.
type answer struct {
	kind wire.SyncKind
	body *growing // nil where there is no way
}

// Sync is part of server.Content.
func (c contents) Sync(ctx context.Context, of server.Showing, r *wire.SyncRequest) (server.Way, error) {
	name := core.SyncName(r.Layer, r.Base, r.Target)
	first := false
	for ctx.Err() == nil {
		a := c.kept(name)
		if a == nil {
			value, asked, err := c.relay.flights.join(ctx, name, func(ctx context.Context, x *flight) { c.fetchSync(ctx, x, name, of, *r) })
			if err != nil {
				c.count(kindSync, asked)
				return server.Way{}, err
			}
			first = first || asked
			if a = value.(*answer); a.body != nil && !a.body.use() {
				continue // it has ended in this moment, and is kept
			}
		}
		c.count(kindSync, first)
		if a.body == nil {
			return server.Way{Kind: a.kind, Frames: nothing(a.kind)}, nil
		}
		return server.Way{Kind: a.kind, Frames: c.frames(ctx, name, a.body, r.Cursor), Close: a.body.release}, nil
	}
	return server.Way{}, context.Cause(ctx)
}

// kept is an answer that is kept, in use; nil when there is none.
func (c contents) kept(name string) *answer {
	f := c.relay.cache.open(name)
	if f == nil {
		return nil
	}
	st, err := f.Stat()
	header := make([]byte, answerHeader)
	if err == nil {
		_, err = f.ReadAt(header, 0)
	}
	kind := wire.SyncKind(header[answerKind])
	if err == nil && (!bytes.HasPrefix(header, []byte(answerMagic)) || kind != wire.SyncDelta && kind != wire.SyncSnapshot) {
		err = errors.New("it is no answer")
	}
	if err != nil {
		_ = f.Close() // it is damaged in any case
		c.relay.cache.drop(name, err)
		return nil
	}
	if unverified(header, time.Now()) {
		_ = f.Close() // it was only read
		c.relay.cache.forget(name)
		return nil
	}
	return &answer{kind: kind, body: whole(f, st.Size())}
}

// unverified tells whether an answer was not verified here, and its time is over. One that is of later than now came while the clock was ahead.
func unverified(header []byte, now time.Time) bool {
	came := int64(binary.BigEndian.Uint64(header[answerCame:]))
	age := now.Unix() - came
	return came != 0 && (age < 0 || age >= int64(unverifiedFor/time.Second))
}

// nothing is a way that has nothing in it.
func nothing(kind wire.SyncKind) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		var b bytes.Buffer
		err := wire.WriteFrame(&b, wire.SyncPart{Kind: kind, Last: true})
		yield(b.Bytes(), err)
	}
}

// frames are the parts of an answer from a key on.
func (c contents) frames(ctx context.Context, name string, g *growing, cursor catalog.Digest) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		from, begun := g.from(ctx, int64(answerHeader)), cursor == catalog.Digest{}
		for {
			frame, err := nextFrame(from)
			if errors.Is(err, io.EOF) {
				return
			}
			if err == nil && !begun {
				frame, begun, err = cut(frame, cursor)
			}
			if reason.Is(err, reason.StateCorrupt) {
				c.relay.cache.drop(name, err)
			}
			if err != nil || frame != nil {
				if !yield(frame, err) || err != nil {
					return
				}
			}
		}
	}
}

// nextFrame reads the next part. The errors are io.EOF at the end, StateCorrupt, and those of the reader.
func nextFrame(from io.Reader) ([]byte, error) {
	corrupt := func(words string) error {
		return &reason.Error{Code: reason.StateCorrupt, Doing: "read an answer that was kept", Cause: errors.New(words)}
	}
	var header [frameHeader]byte
	if _, err := io.ReadFull(from, header[:]); err != nil {
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, corrupt("it has no end")
		}
		return nil, err
	}
	n, sum := binary.BigEndian.Uint32(header[:]), binary.BigEndian.Uint32(header[4:])
	switch {
	case n == 0 && sum != crc32.Checksum(nil, castagnoli):
		return nil, corrupt("its end has another checksum")
	case n == 0:
		return nil, io.EOF
	case n > wire.FrameMax+4:
		return nil, corrupt("a part is too long")
	}
	frame := make([]byte, n)
	if _, err := io.ReadFull(from, frame); err != nil {
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, corrupt("a part is not whole")
		}
		return nil, err
	}
	if crc32.Checksum(frame, castagnoli) != sum {
		return nil, corrupt("a part has another checksum")
	}
	return frame, nil
}

// appendFrame is the next part, as nextFrame reads it; without bytes it is the end.
func appendFrame(b, frame []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(len(frame)))
	return append(binary.BigEndian.AppendUint32(b, crc32.Checksum(frame, castagnoli)), frame...)
}

// cut leaves out of a part what stands before a key; begun says that nothing does in those that follow. A part of which nothing is left is nil,
// unless it is the last.
func cut(frame []byte, cursor catalog.Digest) (rest []byte, begun bool, err error) {
	var part wire.SyncPart
	if err := wire.ReadFrame(bytes.NewReader(frame), &part); err != nil {
		return nil, false, err
	}
	at := 0
	for at < len(part.Changes) && bytes.Compare(part.Changes[at].Key[:], cursor[:]) < 0 {
		at++
	}
	if at == 0 {
		return frame, true, nil
	}
	if part.Changes = part.Changes[at:]; len(part.Changes) == 0 && !part.Last {
		return nil, false, nil
	}
	var b bytes.Buffer
	err = wire.WriteFrame(&b, part)
	return b.Bytes(), true, err
}

// fetching is one sync that comes in.
type fetching struct {
	contents
	name     string
	flight   *flight
	request  wire.SyncRequest
	answer   *answer // nil before the first part
	bytesMax uint64
	bytes    uint64
	changes  int
	rows     []catalog.Row // of a snapshot, as long as it is verified
	verified bool
	last     bool
	over     bool // there is no key behind the last one
	got      bool // something, of the server that is asked now
}

// fetchSync brings an answer in, and settles the flight when it begins to come.
func (c contents) fetchSync(ctx context.Context, x *flight, name string, of server.Showing, r wire.SyncRequest) {
	ctx, cancel := context.WithTimeout(ctx, syncTime)
	defer cancel()
	r.Head, r.Cursor = of.Head, catalog.Digest{}
	f := &fetching{contents: c, name: name, flight: x, request: r, bytesMax: math.MaxUint64}
	if _, h, err := catalog.DecodeHead(of.Head); err == nil {
		f.bytesMax = min(h.Bytes, math.MaxUint64-bytesSlack) + bytesSlack
	}
	err := f.run(ctx)
	switch {
	case f.answer == nil:
		x.settle(nil, err)
	case f.answer.body == nil:
	default:
		f.finish(err)
	}
}

// finish keeps what has come, when all of it has.
func (f *fetching) finish(err error) {
	g := f.answer.body
	defer g.release()
	if err == nil {
		_, err = g.Write(appendFrame(nil, nil))
	}
	if err == nil && f.verified {
		_, err = g.file.WriteAt(make([]byte, 8), int64(answerCame)) // who reads what comes in begins behind it
	}
	if err == nil {
		err = f.relay.cache.keep(f.name, g.file)
	} else {
		f.relay.cache.abandon(f.name)
	}
	if err != nil {
		f.relay.opts.Log.Warn("fetch a layer from a server", "layer", f.request.Layer, "err", err)
	}
	g.end(err)
}

// run asks until the last part has come.
func (f *fetching) run(ctx context.Context) error {
	var backoff transfercore.Backoff
	for failures := 0; ; {
		from := f.relay.servers.forContent(time.Now())
		f.got = false
		err := from.Sync(ctx, f.request, func(p *wire.SyncPart) error { return f.part(from, p) })
		switch {
		case f.last:
			return f.verify(from)
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case f.got:
			failures = 0 // it gets on
		case errors.Is(err, io.EOF):
			err = &reason.Error{Code: reason.ServerUnreachable, Doing: "fetch layer " + f.request.Layer, Cause: errors.New("the answer has ended before its last part")}
		}
		if f.got && errors.Is(err, io.EOF) {
			continue
		}
		e := reason.Of(err)
		if failures++; failures > failuresMax || e.Code == reason.TransferWrong || e.Entry().HTTP < 500 {
			return err
		}
		if !pause(ctx, max(backoff.Next(f.relay.random()), client.PauseOf(err))) {
			return context.Cause(ctx)
		}
	}
}

// part takes in a part.
func (f *fetching) part(from *client.Upstream, p *wire.SyncPart) error {
	if f.answer == nil {
		if err := f.begin(p.Kind); err != nil {
			return err
		}
	}
	if p.Kind != f.answer.kind {
		// What lies between has changed at the server: hosts take the other way from where they are.
		return &reason.Error{Code: reason.TransferWrong, Doing: "fetch layer " + f.request.Layer, Cause: errors.New("the server has taken another way in the middle")}
	}
	if f.last = p.Last || p.Kind == wire.SyncUnknownBase; p.Kind == wire.SyncUnknownBase {
		return io.EOF
	}
	if err := f.check(p); err != nil {
		return f.wrong(from, err)
	}
	var b bytes.Buffer
	if err := f.relay.packer.WriteFrame(&b, p); err != nil {
		return err
	}
	f.relay.metrics.fetched.Add(float64(b.Len()))
	if _, err := f.answer.body.Write(appendFrame(nil, b.Bytes())); err != nil {
		return f.relay.cache.fault("write", f.name, err)
	}
	f.got = true
	if f.last {
		return io.EOF
	}
	return nil
}

// begin is when the first part says which way it is.
func (f *fetching) begin(kind wire.SyncKind) error {
	a := &answer{kind: kind}
	if kind != wire.SyncUnknownBase {
		file, err := f.relay.cache.create(f.name)
		if err != nil {
			return err
		}
		a.body = newGrowing(file)
		header := binary.BigEndian.AppendUint64(append([]byte(answerMagic), byte(kind)), uint64(time.Now().Unix()))
		if _, err := a.body.Write(header); err != nil {
			a.body.release()
			f.relay.cache.abandon(f.name)
			return f.relay.cache.fault("write", f.name, err)
		}
	}
	f.answer = a
	f.flight.settle(a, nil)
	return nil
}

// check keeps an answer to what the head allows, and notes where it is.
func (f *fetching) check(p *wire.SyncPart) error {
	if p.Kind != wire.SyncDelta && p.Kind != wire.SyncSnapshot {
		return fmt.Errorf("a part of kind %d", p.Kind)
	}
	if len(p.Changes) == 0 && !p.Last {
		return errors.New("a part is empty, and not the last one")
	}
	if f.changes += len(p.Changes); f.changes > changesMax {
		return errors.New("there are more changes than a layer may have entries")
	}
	for i := range p.Changes {
		change := &p.Changes[i]
		if f.over || bytes.Compare(change.Key[:], f.request.Cursor[:]) < 0 {
			return errors.New("changes are not in order")
		}
		if change.Deleted == (len(change.Body) > 0) || len(change.Body) > declare.BodyBytesMax {
			return fmt.Errorf("a body of %d bytes", len(change.Body))
		}
		if f.bytes += uint64(len(change.Body)); f.bytes > f.bytesMax {
			return errors.New("more came than the bytes that the head names")
		}
		if p.Kind == wire.SyncSnapshot && f.changes <= verifiedMax {
			f.rows = append(f.rows, catalog.Row{Key: change.Key, Digest: sha256.Sum256(change.Body)})
		}
		f.request.Cursor, f.over = after(change.Key)
	}
	return nil
}

// after is the key behind a key; over says that there is none.
func after(key catalog.Digest) (next catalog.Digest, over bool) {
	for i := len(key) - 1; i >= 0; i-- {
		if key[i]++; key[i] != 0 {
			return key, false
		}
	}
	return key, true
}

// verify computes the root of a snapshot. A difference is verified by the hosts, which have its base.
func (f *fetching) verify(from *client.Upstream) error {
	if f.answer.kind != wire.SyncSnapshot || f.changes > verifiedMax {
		return nil
	}
	if root := catalog.Build(f.rows).Root(); root != f.request.Target {
		return f.wrong(from, fmt.Errorf("layer %s has the root %s, and %s is signed", f.request.Layer, root, f.request.Target))
	}
	f.verified = true
	return nil
}
