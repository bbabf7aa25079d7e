// Package part changes a part of a text and leaves the rest byte for byte as it is: a line, a block of lines between two marks, the
// value of a key, a value in a JSON or YAML document. It is pure: a text and what is wanted of it give another text, the same text
// where it is as wanted, or the reason why that cannot be.
//
//	Edit     the text as declared; editing the result again changes nothing, and that is checked each time
//	Keep     what is there of the part, so that Restore can put it back into the text as it is then
//	Drop     the text without the part
//
// A line, a block and a key are found line by line. Lines keep their ends, LF or CR LF, and a text without an end of its last line
// stays one. A JSON document is checked as a whole and then walked along the pointer only. A YAML document is read as a tree of
// places: where each node begins and ends, and how far it is indented. What is read there is a part of YAML, and what is not
// understood is refused with its line; so nothing is ever changed by guess. Values between brackets are walked by the same code in both.
//
// The package owns no goroutine.
package part
