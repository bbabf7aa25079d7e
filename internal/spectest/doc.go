// Package spectest keeps the reference of a protocol true to the code, for tests of the packages that it is about:
//
//	Bounds   a table of numbers says what the constants are
//	Fields   a table of fields says what the types have, with their comments
//	Golden   vectors are made by the code, and stay as they are
//	Decode   a second reader of CBOR, written from RFC 8949 alone, and Value.Encode a second writer: two of them never disagree
//
// Where the page or a file says something else, the test fails; with -update it writes what is right. The package starts no goroutine.
package spectest
