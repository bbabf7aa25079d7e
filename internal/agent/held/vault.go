package held

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/trust"
)

const (
	// scrubMin is the shortest value, in bytes, that is scrubbed from texts: shorter ones stand in every second word.
	scrubMin = 4
	// scrubLineMin is the same for a line of a value of many lines.
	scrubLineMin = 8
	// scrubbed stands in the place of a value.
	scrubbed = "[secret]"
)

// Vault opens the secrets of a host, and takes their values out of what is told. Keys and values are in memory only. Use NewVault. Its
// methods may be called from several goroutines.
type Vault struct {
	identity *Identity

	mu     sync.Mutex // guards what follows
	sealed map[string][]byte
	keys   map[string]trust.DataKey
	values map[string][]byte // by the ID of their keys
	before map[string][]byte // of the last state that had others: what began with it may still speak of them
	texts  *strings.Replacer // nil where there is nothing to scrub
}

// NewVault returns the vault of a host; it has no keys before the first Take.
func NewVault(identity *Identity) *Vault { return &Vault{identity: identity} }

// Take replaces the keys by those of another state.
func (v *Vault) Take(keys []catalog.OwnKey) {
	v.mu.Lock()
	defer v.mu.Unlock()
	old, known, before := v.keys, v.values, v.before
	v.sealed, v.keys, v.values = map[string][]byte{}, map[string]trust.DataKey{}, map[string][]byte{}
	for _, k := range keys {
		v.sealed[k.ID] = k.Sealed
		if key, ok := old[k.ID]; ok {
			v.keys[k.ID] = key
		}
		for _, values := range []map[string][]byte{known, before} {
			if value, ok := values[k.ID]; ok {
				v.values[k.ID] = value
			}
			delete(values, k.ID)
		}
	}
	if len(known) > 0 {
		v.before = known
	}
	v.learnLocked()
}

// Open opens a sealed content. The errors are SecretKeyMissing where the host was not given its key, and SealBroken.
func (v *Vault) Open(s catalog.Sealed) ([]byte, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	key, err := v.keyLocked(s.Key)
	if err != nil {
		return nil, err
	}
	value, err := key.OpenText(s.Key, s.Text)
	if err != nil {
		return nil, err
	}
	if _, known := v.values[s.Key]; !known {
		v.values[s.Key] = value
		v.learnLocked()
	}
	return value, nil
}

func (v *Vault) keyLocked(id string) (trust.DataKey, error) {
	if key, ok := v.keys[id]; ok {
		return key, nil
	}
	sealed, ok := v.sealed[id]
	if !ok {
		return trust.DataKey{}, &reason.Error{Code: reason.SecretKeyMissing, Doing: "open a secret", Cause: fmt.Errorf("this host was not given key %s", id)}
	}
	node := v.identity.Node()
	key, err := v.identity.Sealing().Open(trust.Envelope{Cluster: node.Cluster, NodeUID: node.UID, KeyID: id}, sealed)
	if err != nil {
		return trust.DataKey{}, err
	}
	v.keys[id] = key
	return key, nil
}

// learnLocked makes what Scrub looks for: the longest values first, so that one inside of another leaves nothing of it.
func (v *Vault) learnLocked() {
	var parts []string
	for _, value := range slices.AppendSeq(slices.Collect(maps.Values(v.values)), maps.Values(v.before)) {
		if len(value) >= scrubMin {
			parts = append(parts, string(value))
		}
		if line := bytes.TrimSpace(value); len(line) >= scrubMin {
			parts = append(parts, string(line))
		}
		for line := range bytes.Lines(value) {
			if line = bytes.TrimSpace(line); len(line) >= scrubLineMin {
				parts = append(parts, string(line))
			}
		}
	}
	slices.SortFunc(parts, func(a, b string) int { return cmp.Or(len(b)-len(a), cmp.Compare(a, b)) })
	parts = slices.Compact(parts)
	v.texts = nil
	if len(parts) == 0 {
		return
	}
	pairs := make([]string, 0, 2*len(parts))
	for _, p := range parts {
		pairs = append(pairs, p, scrubbed)
	}
	v.texts = strings.NewReplacer(pairs...)
}

// Scrub takes the values that were opened out of a text: all of one, its lines, and those of at least 4 bytes only.
func (v *Vault) Scrub(text string) string {
	v.mu.Lock()
	texts := v.texts
	v.mu.Unlock()
	if texts == nil || text == "" {
		return text
	}
	return texts.Replace(text)
}
