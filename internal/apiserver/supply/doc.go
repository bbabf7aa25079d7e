// Package supply gets objects and bundles from other servers that this one lacks: they are on the server that they were put on, and any server may
// be asked for them.
//
//	asked for  an object, by a host whose signed state names it; a bundle, by a layer of a config that names it: never of its own accord
//	core.go    -> which server to ask next, or that all were asked; when to ask all again: a function of what is known and the time
//	supply.go  -> what it has is taken by the shelf of objects, or the store of bundles, which verify it, make it durable, and bound it
//
// Who asks does not wait: he is told that it is on its way (TK0660), or why it is not, and asks again, as hosts do anyway. So one fetch is for all
// who ask, and takes no place from what is served.
//
// An object is fetched only while somebody asks for it. A bundle is asked for once, so it stays wanted until it is here or no config names it any more.
// What was collected here comes back only so.
//
// Run owns all goroutines: one, and one for each fetch. Ask may be called from several goroutines.
package supply
