// Package measures is the one home of what is measured for decisions about how many instances there are: what instances take, as their hosts
// report it, and what a Prometheus answers. All of it is soft: a server that begins to lead has measured nothing, and knows all within a minute.
//
//	reports of hosts -> Usage.Take;  Usage.Of -> the scale of workloads, and whoever reads an Instance
//	queries of workloads -> Prometheus.Want;  Prometheus.Run asks, every 15 s;  Prometheus.Answer -> the scale of workloads
//
// A Prometheus is asked only at an address that the server was started with: a workload names it and never says where it is, so that nobody who may
// declare a workload can have the server call what he cannot reach himself. Redirections are not followed for the same reason, and addresses at which
// clouds keep credentials of machines are refused when a connection is made, whatever a name means by then.
//
// What proves who asks is the workload's: values of Secrets of its namespace, read for each question, sent over TLS or to this machine, and taken out of
// every word that is told of an answer. Questions with other credentials are other questions: nobody has an answer that another one was given.
//
// Usage owns no goroutine. Prometheus.Run owns one for each Prometheus, and up to four for questions to each; all end with its context.
package measures
