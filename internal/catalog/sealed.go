package catalog

// Sealed is a content that only the hosts can read that were given its key. Who seals and opens it is for others to say: here it
// is bytes, and part of what is declared, so that another secret is another body and the same one never moves a root.
type Sealed struct {
	Key  string `json:"k"` // names the key: 32 hexadecimal digits
	Text []byte `json:"t"` // ciphertext
}
