// Package follower is what a server does that does not lead: it passes what hosts say on to the leader, and has those who ask how hosts stand be
// answered by it. Everything else each server does by itself.
//
//	hosts    reports.go  while this server leads: to the register of its own; otherwise noted, and
//	         stream.go   told to the leader, over one stream: the call of a relay, with the word of this server for who the hosts are
//	         identity.go who this server is to the other one
//	people   proxy.go    reads of Nodes go to the leader, as whoever asks, who was let in here and is let in there again
//
// What is heard is noted in any case: of each watch that is open here the newest report. So a server that begins to lead knows at once what the
// hosts say that are connected to it, and a leader that is another one than before is told all anew. That is a pointer to what the
// connection has in memory anyway, and 200 bytes.
//
// Stream.Run owns the goroutines of the stream and of the questions that come over it.
package follower
