// Package trust holds the keys of a cluster and decides what is believed because of them. It has seven parts, each of which
// stands alone:
//
//   - Ring (seal.go, secret.go) encrypts. The machine secret is a Ring in a file; the key for Secrets at rest is another one.
//   - Keys (keys.go) are what every server of a cluster shares: certificate authority, heads key, key for Secrets at rest, token
//     pepper, delivery key. They stand in the store as one blob, sealed under the machine secret.
//   - CA (ca.go) issues certificates, and ExplainCertificate (clock.go) says in words why one is refused.
//   - HostKey (hostkey.go) is a host's own; with NodeRequest it asks for a certificate, which CA.IssueNode makes and ParseNode reads
//     (node.go).
//   - Delivery (delivery.go) makes the key to each value of a Secret, and SealKey (sealing.go) puts it into an envelope that one host
//     opens with its SealingKey.
//   - Token (token.go) and JoinLine (join.go) are what a person or a host shows before it has a certificate.
//   - Chain (document.go, chain.go, edit.go) is trust.json: numbered documents that say which keys speak for the cluster, each one
//     signed by the root keys of the one before and by its own.
//
// What a chain accepts, for document n after document n-1, the first being accepted by its pinned hash alone:
//
//	same cluster; number = n; previous = hash(n-1); issued and epoch not lower; nothing revoked comes back
//	distinct valid signatures by root keys of n-1 >= threshold of n-1
//	distinct valid signatures by root keys of n   >= threshold of n
//	every signature is by one of those keys, and valid
//
// JSON is only how a document is carried. Signed and hashed is the canonical CBOR of what was decoded from it, so nothing can be
// believed that was not signed, and a text that is not exactly what the encoder would write is refused.
//
// Everything here is a function of its arguments: the time is passed in, and no goroutine is started. Randomness comes from
// crypto/rand. Only keyfile.go touches the disk. Types that hold secrets print as their names.
package trust
