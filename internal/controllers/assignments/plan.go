package assignments

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/controllers/layers"
)

// sealedFor is the annotation of an Assignment that says which key of the node its keys are sealed to: the first half of the SHA-256 of it,
// in hexadecimal. A node that has joined again has another one.
const sealedFor = "tako.dev/sealed-for"

// consentAll is that everything may be deleted at once.
const consentAll = 100

// plan is the Assignment that a host is to have.
type plan struct {
	spec      v1alpha1.AssignmentSpec
	sealedFor string    // the annotation; empty: there are no keys
	wakeAt    time.Time // when another one follows by itself; zero: not
	partial   bool      // something could not be compiled or sealed now; what was there stays
	retry     bool      // and nobody will tell when it can be
	leaver    leaver    // who loses keys by it
	left      map[types.UID]error
	compiled  map[string]*layers.Layer
}

// planner plans the Assignment of one host.
type planner struct {
	layers    Layers
	host      *host
	configs   map[string]*config
	now       time.Time
	workloads *workloads
	orders    orders                   // that what is declared has caught up with, on any host
	was       *v1alpha1.AssignmentSpec // what is stored; empty when nothing is
}

// plan says what a host is to have. What is there and still right stays as it is, byte for byte.
func (p *planner) plan(ctx context.Context) (*plan, error) {
	p.was = &v1alpha1.AssignmentSpec{}
	if p.host.assigned != nil {
		p.was = &p.host.assigned.Spec
	}
	next := &plan{spec: v1alpha1.AssignmentSpec{NodeUID: p.host.uid, Environment: p.host.environment}, compiled: map[string]*layers.Layer{}}
	uses := p.planLayers(ctx, next)
	instances, more := p.planInstances(next)
	uses = append(uses, more...)
	p.arrange(ctx, next)
	next.leaver = p.leaver(func(id string) bool {
		return slices.ContainsFunc(uses, func(use layers.KeyUse) bool { return use.ID == id })
	})
	if err := p.planOwn(next, uses, instances); err != nil {
		return nil, err
	}
	list, err := layers.ListOf(next.spec.Layers, ownRoot(next.spec.Own))
	if err != nil {
		return nil, err
	}
	to, err := root(list)
	if err != nil {
		return nil, err
	}
	if err := p.planTry(next, to); err != nil {
		return nil, err
	}
	p.planWindow(next, to)
	p.planConsent(next, to)
	next.spec.Absorbed = absorbed(next.spec.Layers, p.was.Absorbed, p.orders)
	return next, nil
}

// planLayers takes over the rows that were decided, and returns the keys that they need.
func (p *planner) planLayers(ctx context.Context, next *plan) []layers.KeyUse {
	var uses []layers.KeyUse
	for _, row := range p.host.rows {
		old := layerOf(p.was.Layers, row.Config)
		layer, err := layerAt(ctx, p.layers, row.Config, row.Revision, row.Root)
		if err != nil {
			next.partial, next.retry = true, next.retry || !lasting(err)
			if old != nil {
				next.spec.Layers = append(next.spec.Layers, *old)
			}
			continue
		}
		is := v1alpha1.AssignedLayer{Priority: int32(row.Priority), Config: row.Config, Revision: row.Revision, Root: row.Root, Since: metav1.NewTime(p.now.Truncate(time.Second))}
		next.add(is, old, layer)
		uses = append(uses, layer.Keys...)
	}
	return uses
}

// add adds a layer; old is what is there of the same config, if anything is.
func (p *plan) add(is v1alpha1.AssignedLayer, old *v1alpha1.AssignedLayer, layer *layers.Layer) {
	if old != nil && sameLayer(*old, is) {
		is.Since = old.Since
	}
	p.spec.Layers = append(p.spec.Layers, is)
	p.compiled[is.Config] = layer
}

// arrange puts the layers in order, and says how much is in them.
func (p *planner) arrange(ctx context.Context, next *plan) {
	slices.SortFunc(next.spec.Layers, func(a, b v1alpha1.AssignedLayer) int { // an old row may have another priority than the one in whose place it stays
		return cmp.Or(-cmp.Compare(a.Priority, b.Priority), cmp.Compare(a.Config, b.Config))
	})
	next.spec.Entries, next.spec.Bytes = p.size(ctx, next.spec.Layers, next.compiled)
}

func layerOf(all []v1alpha1.AssignedLayer, config string) *v1alpha1.AssignedLayer {
	for i := range all {
		if all[i].Config == config {
			return &all[i]
		}
	}
	return nil
}

// layer is what a host has of a config; nil: nothing.
func (h *host) layer(config string) *v1alpha1.AssignedLayer {
	if h.lost[config] {
		return nil
	}
	return layerOf(h.stored(), config)
}

// stored are the layers of a host as they are stored.
func (h *host) stored() []v1alpha1.AssignedLayer {
	if h.assigned == nil {
		return nil
	}
	return h.assigned.Spec.Layers
}

// planOwn makes the node's own layer: its labels, the keys that its layers need, the holds that have not ended, and its instances.
func (p *planner) planOwn(next *plan, uses []layers.KeyUse, instances []v1alpha1.AssignedInstance) error {
	own := &v1alpha1.OwnLayer{Instances: instances}
	if len(p.host.labels) > 0 {
		own.Labels = p.host.labels
	}
	own.Peers = p.host.peers()
	p.planKeys(next, own, uses)
	for _, h := range p.host.holds {
		if !h.Until.After(p.now) {
			continue
		}
		next.wakeAt = earlier(next.wakeAt, h.Until.Time)
		same := slices.IndexFunc(own.Holds, func(o v1alpha1.NodeHold) bool { return o.Config == h.Config && o.Resource == h.Resource })
		switch {
		case same < 0:
			own.Holds = append(own.Holds, h)
		case own.Holds[same].Until.Before(&h.Until):
			own.Holds[same] = h
		}
	}
	if len(own.Keys)+len(own.Holds)+len(own.Labels)+len(own.Peers)+len(own.Instances) == 0 {
		return nil
	}
	items, err := layers.OwnItems(own)
	if err != nil {
		return err
	}
	own.Root = catalog.TrieOf(items).Root().String()
	next.spec.Own = own
	return nil
}

func ownRoot(own *v1alpha1.OwnLayer) string {
	if own == nil {
		return ""
	}
	return own.Root
}

// planKeys seals to the node what it needs and has not got. One that was sealed stays: each sealing gives other bytes.
func (p *planner) planKeys(next *plan, own *v1alpha1.OwnLayer, uses []layers.KeyUse) {
	if len(p.host.sealingKey) == 0 {
		return
	}
	to := sealedTo(p.host.sealingKey)
	sealed := map[string]v1alpha1.WrappedKey{}
	if p.was.Own != nil && p.host.assigned.Annotations[sealedFor] == to {
		for _, k := range p.was.Own.Keys {
			sealed[k.ID] = k
		}
	}
	for _, use := range uses {
		if slices.ContainsFunc(own.Keys, func(k v1alpha1.WrappedKey) bool { return k.ID == use.ID }) {
			continue
		}
		k, ok := sealed[use.ID]
		if !ok {
			text, err := p.layers.WrapFor(layers.Recipient{UID: string(p.host.uid), SealingKey: p.host.sealingKey}, use)
			if err != nil {
				next.partial, next.retry = true, true
				continue
			}
			k = v1alpha1.WrappedKey{ID: use.ID, Secret: use.Secret, Sealed: text}
		}
		own.Keys = append(own.Keys, k)
	}
	if next.partial { // what could not be compiled may need any of them
		for id, k := range sealed {
			if !slices.ContainsFunc(own.Keys, func(k v1alpha1.WrappedKey) bool { return k.ID == id }) {
				own.Keys = append(own.Keys, k)
			}
		}
	}
	slices.SortFunc(own.Keys, func(a, b v1alpha1.WrappedKey) int { return cmp.Compare(a.ID, b.ID) })
	if len(own.Keys) > 0 {
		next.sealedFor = to
	}
}

// sealedTo is what the annotation says of a key of a node.
func sealedTo(sealingKey []byte) string {
	digest := sha256.Sum256(sealingKey)
	return hex.EncodeToString(digest[:len(digest)/2])
}

// planTry keeps the way back while a config is tried. The first one counts: what is changed while one tries goes back with it. A node
// that had nothing yet has nothing to go back to.
func (p *planner) planTry(next *plan, to catalog.Digest) error {
	old := p.was.Try
	if old != nil && tried(p.configs[old.Config]) > 0 && layerOf(next.spec.Layers, old.Config) != nil {
		if old.Fallback != to.String() {
			next.spec.Try = old
		}
		return nil
	}
	if p.host.assigned == nil {
		return nil
	}
	for i := range next.spec.Layers {
		l := &next.spec.Layers[i]
		seconds := tried(p.configs[l.Config])
		if was := layerOf(p.was.Layers, l.Config); seconds == 0 || was != nil && sameLayer(*was, *l) {
			continue
		}
		list, err := layers.ListOf(p.was.Layers, ownRoot(p.was.Own))
		if err != nil {
			return err
		}
		fallback, err := root(list)
		if err != nil {
			return err
		}
		next.spec.Try = &v1alpha1.AssignedTry{Seconds: seconds, Config: l.Config, Fallback: fallback.String(), Layers: p.was.Layers, OwnRoot: ownRoot(p.was.Own)}
		return nil
	}
	return nil
}

// tried is for how many seconds a config is tried; 0: it is not.
func tried(c *config) int32 {
	if c == nil || c.rollout.Try == "" || c.goal() != c.newest { // what a failed one goes back to is tried already
		return 0
	}
	d, err := time.ParseDuration(c.rollout.Try)
	if err != nil || d < 0 {
		return 0 // Validate lets no such thing through
	}
	return int32((d + time.Second - 1) / time.Second)
}

// planConsent says how much the host may delete. A consent that it may not have heard of yet goes on with what comes after.
func (p *planner) planConsent(next *plan, to catalog.Digest) {
	allowed := strings.TrimPrefix(p.host.allowDeletions, "sha256:")
	switch {
	case p.host.assigned == nil:
	case p.was.Environment != p.host.environment, allowed == to.String():
		next.spec.AllowDeletions = consentAll
	case sameSpec(next, p.was, p.host.assigned.Annotations[sealedFor], p.was.AllowDeletions), !p.enforced():
		next.spec.AllowDeletions = p.was.AllowDeletions
	}
}

// sameSpec reports whether a plan says what is there, but for the consent.
func sameSpec(next *plan, was *v1alpha1.AssignmentSpec, sealed string, consent int32) bool {
	with := *next
	with.spec.AllowDeletions = consent
	return with.is(was, sealed)
}

// enforced: the host has taken up what is assigned.
func (p *planner) enforced() bool {
	r := p.host.seen.Report
	return r != nil && r.Enforced.Version >= versionOf(p.host.assigned)
}

// is reports whether the plan says what is stored.
func (p *plan) is(was *v1alpha1.AssignmentSpec, sealed string) bool {
	s := &p.spec
	return s.NodeUID == was.NodeUID && s.Environment == was.Environment && s.Entries == was.Entries && s.Bytes == was.Bytes && s.AllowDeletions == was.AllowDeletions &&
		s.FetchWindowSeconds == was.FetchWindowSeconds && slices.Equal(s.Absorbed, was.Absorbed) && p.sealedFor == sealed && slices.EqualFunc(s.Layers, was.Layers, sameLayer) && sameOwn(s.Own, was.Own) && sameTry(s.Try, was.Try)
}

func sameLayer(a, b v1alpha1.AssignedLayer) bool {
	return a.Priority == b.Priority && a.Config == b.Config && a.Revision == b.Revision && a.Root == b.Root
}

// sameOwn goes by the root, which is of all that is in it.
func sameOwn(a, b *v1alpha1.OwnLayer) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Root == b.Root && slices.EqualFunc(a.Keys, b.Keys, func(a, b v1alpha1.WrappedKey) bool { return a.ID == b.ID && bytes.Equal(a.Sealed, b.Sealed) })
}

func sameTry(a, b *v1alpha1.AssignedTry) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Seconds == b.Seconds && a.Config == b.Config && a.Fallback == b.Fallback
}
