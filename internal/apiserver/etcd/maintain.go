package etcd

import (
	"context"
	"errors"
	"log/slog"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
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
// room: etcd does neither by itself. It returns when the context ends.
func (m *Member) Maintain(ctx context.Context, client *clientv3.Client, log *slog.Logger) {
	tick := time.NewTicker(maintainEvery)
	defer tick.Stop()
	for {
		if err := m.maintain(ctx, client, log); err != nil && ctx.Err() == nil {
			log.Warn("maintain the database", "component", "etcd", "err", err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// maintain is one round.
func (m *Member) maintain(ctx context.Context, client *clientv3.Client, log *slog.Logger) error {
	ctx, cancel := context.WithTimeout(ctx, maintainMax)
	defer cancel()
	status, err := client.Status(ctx, m.url)
	if err != nil {
		return err
	}
	alarms, err := client.AlarmList(ctx)
	if err != nil {
		return err
	}
	full := false
	for _, a := range alarms.Alarms {
		full = full || a.Alarm == pb.AlarmType_NOSPACE
	}
	if full {
		log.Error("the database has reached its quota: nothing can be written", "component", "etcd", "bytes", status.DbSize, "quota", m.quota)
		// What was deleted takes room until the history is cut.
		if _, err := client.Compact(ctx, status.Header.Revision); err != nil && !errors.Is(err, rpctypes.ErrCompacted) {
			return err
		}
	}
	if !full && (status.DbSize < defragmentMin || status.DbSizeInUse > status.DbSize/defragmentShare) {
		return nil
	}
	if _, err := client.Defragment(ctx, m.url); err != nil {
		return err
	}
	if !full {
		return nil
	}
	if status, err = client.Status(ctx, m.url); err != nil || status.DbSize > m.quota/100*enoughPercent {
		return err
	}
	if _, err := client.AlarmDisarm(ctx, &clientv3.AlarmMember{}); err != nil {
		return err
	}
	log.Info("the database has room again", "component", "etcd", "bytes", status.DbSize)
	return nil
}
