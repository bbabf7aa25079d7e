// Package several proves what several servers of one cluster do together: one etcd, two or three servers as processes, and agents that are
// directories of this machine, which never go back while a leader is killed, cut off from etcd, or stopped for a while.
package several
