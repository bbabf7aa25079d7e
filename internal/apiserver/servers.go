package apiserver

import (
	"cmp"
	"context"
	buildinfo "runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/endpoints/request"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/internal/apiserver/election"
	"tako.dev/tako/internal/reason"
)

// serverPath is where a server is asked how it stands.
const serverPath = "/apis/" + v1alpha1.GroupName + "/" + v1alpha1.Version + "/" + v1alpha1.ResourceServers + "/"

// standing says how the servers stand: this one by what it knows, the others by what they say.
type standing struct {
	self    election.Server
	several *several  // nil: this is the only server
	began   time.Time // of this process
	hosts   *transfer // set before anybody asks
}

func (s *Server) newStanding(p parts) (*standing, error) {
	id, err := p.dir.ServerID()
	if err != nil {
		return nil, err
	}
	return &standing{self: s.selfAs(id, p), several: p.several, began: time.Now()}, nil
}

// selfAs is this server as the others know it.
func (s *Server) selfAs(id string, p parts) election.Server {
	return election.Server{ID: id, API: s.reachable(s.opts.Listen, p.listener.Addr()), Transfer: s.reachable(s.opts.TransferListen, p.hosts.Addr())}
}

// read is how servers stand now: all by name, or one. A server is told of this one alone: otherwise two would ask each other for a third one.
func (n *standing) read(ctx context.Context, name string) []v1alpha1.Server {
	who, known := request.UserFrom(ctx)
	byServer := known && strings.HasPrefix(who.GetName(), serverUser)
	var asked []election.Server
	for _, server := range n.all() {
		if (name == "" || server.ID == name) && (server.ID == n.self.ID || !byServer) {
			asked = append(asked, server)
		}
	}
	out := make([]v1alpha1.Server, len(asked))
	var all sync.WaitGroup
	for i, server := range asked {
		out[i] = v1alpha1.Server{
			TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: v1alpha1.KindServer},
			ObjectMeta: metav1.ObjectMeta{Name: server.ID},
		}
		if server.ID == n.self.ID {
			out[i].Status = n.own()
			continue
		}
		all.Go(func() { out[i].Status = n.several.status(ctx, server) })
	}
	all.Wait()
	return out
}

// all are the servers that run, as far as this one knows, by name. This one does.
func (n *standing) all() []election.Server {
	all := []election.Server{n.self}
	if n.several != nil {
		view, _, _ := n.several.election.View()
		for _, server := range view.Servers {
			if !slices.ContainsFunc(all, func(other election.Server) bool { return other.ID == server.ID }) {
				all = append(all, server)
			}
		}
	}
	slices.SortFunc(all, func(a, b election.Server) int { return cmp.Compare(a.ID, b.ID) })
	return all
}

// own is how this server stands.
func (n *standing) own() v1alpha1.ServerStatus {
	began, role, t := metav1.NewTime(n.began), v1alpha1.ServerLeader, n.hosts
	status := v1alpha1.ServerStatus{Address: n.self.API, TransferAddress: n.self.Transfer, Version: programVersion(),
		Revision: t.heads.Revision(), Fresh: t.heads.Fresh(time.Now()), Hosts: int32(t.server.Hosts())}
	if n.several != nil {
		view, _, _ := n.several.election.View()
		if !view.Leading {
			role = v1alpha1.ServerFollower
		}
		began, status.Term = metav1.NewTime(view.Since), view.Term
	}
	status.Role, status.Since = role, &began
	return status
}

// status is what another server says how it stands.
func (v *several) status(ctx context.Context, of election.Server) v1alpha1.ServerStatus {
	var said v1alpha1.Server
	err := v.proxy.Get(ctx, of.API, serverPath+of.ID, &said)
	status := said.Status
	if err != nil {
		status = v1alpha1.ServerStatus{Role: v1alpha1.ServerUnknown, Message: reason.Of(err).Error()}
	}
	status.Address, status.TransferAddress = of.API, of.Transfer // as they were asked for
	return status
}

// programVersion is the version of this program as the build has recorded it.
func programVersion() string {
	if info, ok := buildinfo.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "unknown"
}
