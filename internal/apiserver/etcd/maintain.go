package etcd

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
	// lookEvery is how soon the log goes on after the disk was full. Between two looks a log that has no next segment must not
	// fill the one that it has, of 64 MB.
	lookEvery = 500 * time.Millisecond
	// maintainEvery is how soon a database that was full is written again after room was made in it.
	maintainEvery = 10 * time.Second
	// maintainMax bounds one round: to defragment two GiB takes a minute on a slow disk.
	maintainMax = 5 * time.Minute
	// A database of this size, half of it empty, is made smaller; below that nobody would notice.
	defragmentMin, defragmentShare = 100 << 20, 2
	// enoughPercent of the quota may be in use when a database that was full is opened for writes again.
	enoughPercent = 90
)

// Maintain gives back the room of what was deleted, and ends the alarm that etcd raises when its quota is reached, once there is
// room: etcd does neither by itself. When the disk was full as the log needed room, it opens the member again. It returns when
// the context ends.
func (m *Member) Maintain(ctx context.Context, client *clientv3.Client, log *slog.Logger) {
	k := keeper{member: m, client: client, log: log.With("component", "etcd")}
	looks, rounds := time.NewTicker(lookEvery), time.NewTicker(maintainEvery)
	defer looks.Stop()
	defer rounds.Stop()
	k.round(ctx)
	for {
		select {
		case <-looks.C:
			k.look(ctx)
		case <-rounds.C:
			k.round(ctx)
		case <-ctx.Done():
			return
		}
	}
}

// keeper maintains a member. It belongs to one goroutine.
type keeper struct {
	member *Member
	client *clientv3.Client
	log    *slog.Logger

	segments segments // at the last look
	refuses  bool     // writes, as it has said
	problem  string   // that it has said
}

// round is one round of maintenance. What goes wrong in the same way again is not told again.
func (k *keeper) round(ctx context.Context) {
	err := k.member.maintain(ctx, k.client)
	switch {
	case ctx.Err() != nil:
	case err == nil:
		k.problem = ""
	case err.Error() != k.problem:
		k.problem = err.Error()
		k.log.Warn("maintain the database", "err", err)
	}
}

// look looks after the room on the disk, and says when writes are refused and when they are taken again.
func (k *keeper) look(ctx context.Context) {
	if err := k.lookAtLog(ctx); err != nil && ctx.Err() == nil {
		k.log.Error("look after etcd's log", "err", err)
	}
	switch err := k.member.Writable(); {
	case err != nil && !k.refuses:
		k.log.Error("no writes are taken", "err", err)
	case err == nil && k.refuses:
		k.log.Info("writes are taken again")
	default:
		return
	}
	k.refuses = !k.refuses
}

// lookAtLog opens the member again when its log has no next segment, and now has room for it.
func (k *keeper) lookAtLog(ctx context.Context) error {
	dir := k.member.opts.Dir
	now, err := lookAtLog(logDir(dir))
	if err != nil {
		return err
	}
	before := k.segments
	k.segments = now
	stuck := now.stuck(before)
	if !k.member.stuck.Swap(stuck) || !stuck {
		return nil // or seen for the first time
	}
	// What was allocated of the next segment would be in the way of others, and of the next try.
	for _, path := range now.torn {
		if err := remove(path); err != nil {
			return err
		}
	}
	if roomToStart(dir) != nil {
		return nil // not yet
	}
	k.log.Info("open etcd again: its log has room to go on")
	return k.member.reopen(ctx)
}

// reopen stops etcd and starts it again. Who is attached waits; watches go on where they were. Without success the member has
// ended.
func (m *Member) reopen(ctx context.Context) error {
	m.calls.mu.Lock()
	defer m.calls.mu.Unlock()
	m.quiet.Store(true)
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		m.closeLocked()
	}()
	select {
	case <-closed:
	case <-m.end.done:
		return m.end.err
	}
	m.quiet.Store(false)
	m.reserve.forget()
	if err := m.openLocked(ctx); err != nil {
		if ctx.Err() == nil {
			m.end.with(err)
		}
		return err
	}
	m.stuck.Store(false)
	return nil
}

// maintain is one round.
func (m *Member) maintain(ctx context.Context, client *clientv3.Client) error {
	ctx, cancel := context.WithTimeout(ctx, maintainMax)
	defer cancel()
	url := m.client.String()
	status, err := client.Status(ctx, url)
	if err != nil {
		return err
	}
	full := quotaReached(status)
	m.overQuota.Store(full)
	if full {
		// What was deleted takes room until the history is cut.
		if _, err := client.Compact(ctx, status.Header.Revision, clientv3.WithCompactPhysical()); err != nil && !errors.Is(err, rpctypes.ErrCompacted) {
			return err
		}
	}
	if !full && (status.DbSize < defragmentMin || status.DbSizeInUse > status.DbSize/defragmentShare) {
		return nil
	}
	if err := m.defragment(ctx, client, status.DbSizeInUse); err != nil || !full {
		return err
	}
	if status, err = client.Status(ctx, url); err != nil || status.DbSize > m.opts.QuotaBytes/100*enoughPercent {
		return err
	}
	if _, err := client.AlarmDisarm(ctx, &clientv3.AlarmMember{MemberID: status.Header.MemberId, Alarm: pb.AlarmType_NOSPACE}); err != nil {
		return err
	}
	m.overQuota.Store(false)
	return nil
}

// quotaReached says whether etcd has raised its alarm. To ask for the alarms themselves would be a write to its log.
func quotaReached(status *clientv3.StatusResponse) bool {
	return slices.ContainsFunc(status.Errors, func(e string) bool { return strings.Contains(e, pb.AlarmType_NOSPACE.String()) })
}

// defragment writes the database anew, into another file: while it does there are both.
func (m *Member) defragment(ctx context.Context, client *clientv3.Client, inUse int64) error {
	r, err := m.room(ctx)
	if err != nil {
		return err
	}
	r.bytes -= inUse
	if l, ok := r.lacks(grow); ok {
		return noRoom(m.opts.Dir, l)
	}
	_, err = client.Defragment(ctx, m.client.String())
	m.reserve.forget()
	return err
}
