// Package order is what `tako sign` and `tako export` do: orders and places from which hosts take what is signed for them when no server
// answers.
//
//	files -> the config, with its ConfigMaps -> catalog.CompileWith, as servers do -> a statement, signed -> an order, or into a place
//	node -> its export from a server -> head, list, layers -> into a place
//
// It owns no goroutine.
package order
