package swarm

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/client"
	"tako.dev/tako/internal/trust"
)

const (
	// joinersMax is how many hosts join at once: a server counts the uses of a token one after the other.
	joinersMax = 16
	// joinAgain is how often a host that was told to come later does.
	joinAgain = 20
)

// cluster is what all hosts of a file have in common.
type cluster struct {
	Trust string // hash of document 1
	Chain []byte // as trust.EncodeDocuments writes it
}

// member is one host.
type member struct {
	Name, UID   string
	Key         []byte // PEM
	Certificate []byte // DER
}

// Joining says who joins, and how.
type Joining struct {
	Line  trust.JoinLine
	Count int
	Net   netip.Prefix // that their addresses are of
}

// Join lets hosts join with one token, each from an address of its own, and writes down who they are.
func Join(ctx context.Context, j Joining, file string) (err error) {
	out, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	var mu sync.Mutex // guards encoder and first
	encoder, first := json.NewEncoder(out), true
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(joinersMax)
	for i := range j.Count {
		g.Go(func() error {
			m, documents, err := joinOne(ctx, j.Line, name(i), address(j.Net, i))
			if err != nil {
				return fmt.Errorf("join as %s: %w", name(i), err)
			}
			mu.Lock()
			defer mu.Unlock()
			if first {
				first = false
				if err := encoder.Encode(cluster{j.Line.Trust.String(), documents}); err != nil {
					return err
				}
			}
			return encoder.Encode(m)
		})
	}
	return g.Wait()
}

func name(i int) string { return fmt.Sprintf("host-%05d", i) }

// address is that of a host: the network's with a number; the first is left to whoever routes there.
func address(of netip.Prefix, i int) netip.Addr {
	if !of.IsValid() {
		return netip.Addr{}
	}
	b := of.Masked().Addr().As4()
	n := uint32(b[0])<<24 | uint32(b[1])<<16 | uint32(b[2])<<8 | uint32(b[3])
	n += uint32(i) + 2
	return netip.AddrFrom4([4]byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)})
}

// joinOne lets one host join, later where the server says so.
func joinOne(ctx context.Context, line trust.JoinLine, name string, from netip.Addr) (m member, documents []byte, err error) {
	key, sealing := trust.NewHostKey(), trust.NewSealingKey()
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		return dialer(from).DialContext(ctx, network, address)
	}
	for try := 0; ; try++ {
		c, err := client.Join(ctx, client.Joining{Line: line, Name: name, Host: key, Sealing: sealing, Dial: dial})
		if err == nil {
			return member{Name: c.Name, UID: c.UID, Key: key.EncodePEM(), Certificate: c.Certificate}, c.Trust, nil
		}
		after := reason.Of(err).After
		if after == 0 || try == joinAgain {
			return member{}, nil, err
		}
		if err := wait(ctx, after); err != nil {
			return member{}, nil, err
		}
	}
}

// wait waits, or ends with the context.
func wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// read reads the first hosts of a file.
func read(file string, count int, of netip.Prefix) ([]*host, error) {
	in, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	decoder := json.NewDecoder(bufio.NewReader(in))
	var c cluster
	if err := decoder.Decode(&c); err != nil {
		return nil, err
	}
	documents, err := trust.DecodeDocuments(c.Chain)
	if err != nil {
		return nil, err
	}
	pin, err := trust.ParseHash(c.Trust)
	if err != nil {
		return nil, err
	}
	chain, err := trust.Verify(documents, pin, time.Time{})
	if err != nil {
		return nil, err
	}
	all := make([]*host, 0, count)
	for i := range count {
		var m member
		if err := decoder.Decode(&m); err != nil {
			return nil, fmt.Errorf("host %d of %d: %w", i, count, err)
		}
		key, err := trust.DecodeHostKey(m.Key)
		if err != nil {
			return nil, err
		}
		certificate, err := key.TLS(m.Certificate)
		if err != nil {
			return nil, err
		}
		node := catalog.Node{Cluster: chain.Current().Cluster, Name: m.Name, UID: m.UID}
		all = append(all, newHost(node, chain, certificate, address(of, i)))
	}
	return all, nil
}
