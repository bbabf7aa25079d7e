package sim

import (
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"time"

	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/trust"
)

// cluster is the name of every world's cluster: chance would be in the trace.
const cluster trust.ClusterID = "simsimsimsimsimsimsimsim"

// authority is who holds the keys.
type authority struct {
	seed      uint64
	root      *trust.SigningKey
	heads     *trust.SigningKey   // that servers sign with
	operators []*trust.SigningKey // people who sign statements
	chain     *trust.Chain        // the newest
	drawn     int                 // keys that were made
}

// must is for what cannot fail: it is made here, of what is known to be right.
func must[T any](v T, err error) T {
	if err != nil {
		panic(fmt.Sprintf("sim: %v", err))
	}
	return v
}

func newAuthority(seed uint64, now time.Time) authority {
	a := authority{seed: seed}
	a.root, a.heads = a.key(), a.key()
	ca := must(trust.NewCA(cluster, now)) // random, but nothing here depends on which it is
	a.chain = must(trust.NewChain(trust.Genesis{Cluster: cluster, CA: ca, Root: a.root, Heads: a.heads.Public()}, now, now))
	for range 2 {
		k := a.key()
		a.operators = append(a.operators, k)
		a.decree(now, trust.SetKey(trust.RoleOperator, k.Public(), now.Add(365*24*time.Hour)))
	}
	return a
}

// key makes the next key of this seed.
func (a *authority) key() *trust.SigningKey {
	a.drawn++
	seed := sha256.Sum256(fmt.Appendf(nil, "tako simulation %d key %d", a.seed, a.drawn))
	der := must(x509.MarshalPKCS8PrivateKey(ed25519.NewKeyFromSeed(seed[:])))
	return must(trust.DecodeSigningKey(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})))
}

// decree makes the next trust document.
func (a *authority) decree(now time.Time, edits ...trust.Edit) {
	next := must(must(a.chain.Next(now, edits...)).Sign(a.root))
	a.chain = must(a.chain.Extend([]trust.Signed{next}))
}

func (a *authority) epoch() uint64 { return a.chain.Current().Epoch }

func signHead(h catalog.Head, key *trust.SigningKey) []byte {
	return must(must(h.Sign(key)).Encode())
}

func signStatement(s catalog.Statement, key *trust.SigningKey) []byte {
	return must(must(s.Sign(key)).Encode())
}
