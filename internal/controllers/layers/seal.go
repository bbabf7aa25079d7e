package layers

import (
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/trust"
)

// seal seals a value of a Secret under its own key, and notes that the layer needs that.
func (c *compilation) seal(uid string, ref reference, key string, value []byte) *catalog.Sealed {
	id, k := c.layers.keys.Delivery().DataKey(uid, key, value)
	c.keys[id] = KeyUse{ID: id, Secret: ref.namespace + "/" + ref.name + "/" + key, key: k}
	return &catalog.Sealed{Key: id, Text: k.SealText(id, value)}
}

// WrapFor seals a key to a node. Each call gives other bytes: what is made once is to be kept. The error is InvalidValue, for a
// sealing key that is none.
func (l *Layers) WrapFor(to Recipient, key KeyUse) ([]byte, error) {
	return trust.SealKey(to.SealingKey, trust.Envelope{Cluster: l.keys.Cluster(), NodeUID: to.UID, KeyID: key.ID}, key.key)
}

// KeyID names the key to a value of a Secret, as KeyUse and WrappedKey do: who knows which key a host has had learns with it whether
// that was to this very value.
func (l *Layers) KeyID(secretUID, key string, value []byte) string {
	id, _ := l.keys.Delivery().DataKey(secretUID, key, value)
	return id
}
