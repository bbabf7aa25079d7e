// Package fleet makes of nodes, configs and assignments what a person wants to know: the whole fleet on one page, and why something
// is not as declared. Read asks the server; everything else is pure, and there is one list of findings behind both.
package fleet
