// Package place is where hosts find what servers would send them: a directory, such as one on a stick, or a location of HTTP(S). Nobody
// vouches for it. Whoever reads it verifies what is there, as it does what a server sends.
//
//	trust.json      the trust documents from number 1
//	heads/UID       the signed head of the node with that UID
//	statements      signed layer statements, as EncodeStatements writes them
//	lists/ROOT      catalog lists
//	layers/ROOT     the rows of layers with their bodies, as catalog.WriteRows writes them
//
// Reading is bounded: each kind of file by its own size, a layer by what is signed of it. A list and a layer are verified here, by the
// root that they are called after, so that one that was damaged or forged is as if it were not there. Heads, statements and trust documents are handed on as they are.
//
// The package starts no goroutine. The methods of Place may be called from several.
package place
